// Threads for what clients send as text: templates, tokenizing. Long texts have a queue and a
// thread of their own, so that nobody who asks a short question waits for a book to be tokenized.
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
  // A longer one takes more than some milliseconds.
  static constexpr size_t kShortBytes = size_t{64} << 10;

  // `bytes`: of the text, as far as it can be told. Order and errors as of TaskPool::Post.
  absl::Status Post(size_t bytes, int32_t priority, std::function<void()> task) {
    TaskPool& pool = bytes <= kShortBytes ? short_ : long_;
    return pool.Post(std::move(task), priority);
  }

 private:
  // What is queued is held in memory: each of the two at most 256 MiB with a prompt's usual bounds.
  static constexpr size_t kMaxShort = 1024;
  static constexpr size_t kMaxLong = 64;

  TaskPool short_{/*threads=*/2, kMaxShort, "texts to be tokenized"};
  TaskPool long_{/*threads=*/1, kMaxLong, "long texts to be tokenized"};
};

}  // namespace baton
