// Threads for work on clients' text: chat templates and tokenising. Long texts have a queue and a
// thread of their own, so that a short question never waits behind a book.
//
// Thread safety: Post from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include "rpc/task_pool.h"

namespace baton {

class TextTasks {
 public:
  // A longer text takes more than some milliseconds.
  static constexpr size_t kShortBytes = size_t{64} << 10;

  // `bytes` is the text's length as far as it is known. Order and errors as TaskPool::Post.
  absl::Status Post(size_t bytes, int32_t priority, std::function<void()> task) {
    TaskPool& pool = bytes <= kShortBytes ? short_ : long_;
    return pool.Post(std::move(task), priority);
  }

  // Runs `task` soon, whatever is queued. The number of calls bounds these tasks.
  void Continue(std::function<void()> task) { short_.PostAlways(std::move(task), kSoon); }

 private:
  static constexpr int32_t kSoon = 1000;  // above every request's priority

  // Queued texts stay in memory. With the default limit on prompts, each of the two queues holds at
  // most 256 MiB.
  static constexpr size_t kMaxShort = 1024;
  static constexpr size_t kMaxLong = 64;

  TaskPool short_{/*threads=*/2, kMaxShort, "texts to be tokenized"};
  TaskPool long_{/*threads=*/1, kMaxLong, "long texts to be tokenized"};
};

}  // namespace baton
