// A few threads with one bounded queue, for what would keep a gRPC callback thread from its
// connections: templates and tokenizers on a client's text, building a tokenizer, asking an engine
// for its state.
//
// Thread safety: Post from any thread. The destructor drops what is queued and waits for the tasks
// that run.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"

namespace baton {

class TaskPool {
 public:
  // REQUIRES: threads >= 1. `what` names the queued in refusals, as in "texts to be tokenized".
  TaskPool(int32_t threads, size_t max_queued, std::string what);
  ~TaskPool();
  TaskPool(const TaskPool&) = delete;
  TaskPool& operator=(const TaskPool&) = delete;

  // Tasks of higher priority start first, and equal ones in the order in which they came.
  // ResourceExhausted names the bound when the queue is full, Unavailable once the pool ends; the
  // task is dropped then.
  absl::Status Post(std::function<void()> task, int32_t priority = 0);

 private:
  void Run();

  const size_t max_queued_;
  const std::string what_;
  std::mutex mutex_;
  std::condition_variable changed_;
  absl::btree_map<std::pair<int64_t, uint64_t>, std::function<void()>>
      queue_;  // by -priority, turn
  uint64_t next_turn_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;  // last: they start when all else is there
};

}  // namespace baton
