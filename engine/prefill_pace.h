// Mean time of a prompt token in recent steps, to estimate how long queued prompts will take.
//
// A step's time is divided among its prompt tokens and its decode rows by their number. Older steps
// count less: each new step weighs a tenth.
//
// Thread safety: belongs to one thread.
#pragma once

#include <cstdint>

namespace baton {

class PrefillPace {
 public:
  // A step took `us` for these tokens. Steps without prompt tokens are ignored.
  void Learn(int64_t us, int64_t prompt_tokens, int64_t decode_tokens) {
    if (prompt_tokens <= 0 || us < 0) return;
    const double share =
        static_cast<double>(prompt_tokens) / static_cast<double>(prompt_tokens + decode_tokens);
    us_ = kOlder * us_ + share * static_cast<double>(us);
    tokens_ = kOlder * tokens_ + static_cast<double>(prompt_tokens);
  }

  // Time to compute so many prompt tokens; 0 before the first prompt.
  int64_t UsFor(int64_t tokens) const {
    if (tokens_ <= 0) return 0;
    return static_cast<int64_t>(us_ / tokens_ * static_cast<double>(tokens));
  }

 private:
  static constexpr double kOlder = 0.9;

  double us_ = 0;
  double tokens_ = 0;
};

}  // namespace baton
