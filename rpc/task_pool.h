// Pool of threads with one bounded queue, for work that would block a gRPC callback thread.
// Examples: templates and tokenizers on a client's text, building a tokenizer, asking an engine for
// its state.
//
// Thread safety: Post may be called from any thread. The destructor drops queued tasks and waits
// for running ones.
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
  // `what`: plural noun for queued tasks, for refusals, as in "texts to be tokenized". REQUIRES:
  // threads >= 1.
  TaskPool(int32_t threads, size_t max_queued, std::string what);
  ~TaskPool();
  TaskPool(const TaskPool&) = delete;
  TaskPool& operator=(const TaskPool&) = delete;

  // Queues a task. Tasks of higher priority start first, equal ones in the order of arrival.
  // ResourceExhausted, with the limit: the queue is full. Unavailable: the pool is ending. A
  // refused task is dropped.
  absl::Status Post(std::function<void()> task, int32_t priority = 0);
  // The same without the limit, for tasks whose number the caller bounds. Dropped if the pool is
  // ending.
  void PostAlways(std::function<void()> task, int32_t priority = 0);

 private:
  void Run();
  void PostLocked(std::function<void()> task, int32_t priority);  // REQUIRES mutex_

  const size_t max_queued_;
  const std::string what_;
  std::mutex mutex_;
  std::condition_variable changed_;
  absl::btree_map<std::pair<int64_t, uint64_t>, std::function<void()>>
      queue_;  // by (-priority, arrival)
  uint64_t next_turn_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;  // last member: they start after all others exist
};

}  // namespace baton
