// Decides when a worker sends a heartbeat early, because its uncomputed prompt tokens have changed.
//
// A router knows its own requests. What the others have sent, it knows only from the worker. With
// heartbeats alone, which come every second, all routers would choose the same idle worker again
// and again.
//
// Thread safety: belongs to one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

namespace baton {

class BacklogNews {
 public:
  static constexpr int64_t kLookEveryMs = 100;

  // `token_budget`: tokens that a step may compute. A quarter of them is worth a message.
  explicit BacklogNews(int32_t token_budget) : least_tokens_(std::max(1, token_budget / 4)) {}

  // Returns true if the prompt tokens that the worker must still compute (Scheduler::
  // PromptTokensLeft) have changed that much since the last call that returned true. Call it every
  // kLookEveryMs, so that a worker sends at most ten such messages a second.
  bool Changed(int64_t prompt_tokens_left) {
    if (std::abs(prompt_tokens_left - told_tokens_) < least_tokens_) return false;
    told_tokens_ = prompt_tokens_left;
    return true;
  }

 private:
  int64_t least_tokens_;
  int64_t told_tokens_ = 0;
};

}  // namespace baton
