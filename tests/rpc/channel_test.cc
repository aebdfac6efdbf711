#include "rpc/channel.h"

#include <gtest/gtest.h>

#include <chrono>
#include <limits>

namespace baton {
namespace {

TEST(Channel, NoTimeoutGivesADeadlineInThePastOrNoDeadline) {
  using Clock = std::chrono::system_clock;
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  for (const auto& [timeout_ms, wait_ms] : {std::pair{int64_t{5000}, int64_t{5000}},
                                            {kMost, kMaxTimeoutMs},
                                            {kMaxTimeoutMs + 1, kMaxTimeoutMs},
                                            {int64_t{-1}, int64_t{0}},
                                            {kLeast, int64_t{0}}}) {
    const auto before = Clock::now();
    const auto deadline = DeadlineIn(timeout_ms);
    const auto after = Clock::now();
    EXPECT_GE(deadline, before + std::chrono::milliseconds(wait_ms)) << timeout_ms;
    EXPECT_LE(deadline, after + std::chrono::milliseconds(wait_ms)) << timeout_ms;
  }
}

}  // namespace
}  // namespace baton
