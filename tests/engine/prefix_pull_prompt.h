// The prompt that tests of prefix pulls use, and the length of its lease.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/engine/worker_bench.h"

namespace baton {

inline const std::vector<TokenId> kPrompt =
    Bytes("the quick brown fox jumps over it");                                    // 33 tokens
inline const std::vector<TokenId> kPrefix(kPrompt.begin(), kPrompt.begin() + 32);  // 8 blocks
inline constexpr int64_t kLeaseUs = 1'000'000;

inline void EndLeases(WorkerBench& bench) {
  bench.clock.AdvanceUs(kLeaseUs);
  bench.core->CheckDeadlines();
}

}  // namespace baton
