#include "rpc/call_gate.h"

#include <gtest/gtest.h>

#include <optional>
#include <thread>
#include <utility>

namespace baton {
namespace {

TEST(CallGate, TakesNoMoreThanItsBoundAndGivesPlacesBack) {
  CallGate gate(2);
  absl::StatusOr<CallGate::Pass> first = gate.Enter();
  {
    absl::StatusOr<CallGate::Pass> second = gate.Enter();
    ASSERT_TRUE(second.ok());
    EXPECT_EQ(gate.Enter().status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(gate.active(), 2);
  }
  EXPECT_EQ(gate.active(), 1);
  EXPECT_TRUE(gate.Enter().ok());
}

TEST(CallGate, AMovedPassCountsOnce) {
  CallGate gate(4);
  CallGate::Pass pass = *gate.Enter();
  CallGate::Pass moved = std::move(pass);
  EXPECT_EQ(gate.active(), 1);
  { const CallGate::Pass ends = std::move(moved); }
  EXPECT_EQ(gate.active(), 0);
}

TEST(CallGate, AClosedGateLetsNobodyInAndWaitsForTheLastOne) {
  CallGate gate(4);
  std::optional<CallGate::Pass> pass(*gate.Enter());
  gate.Close();
  EXPECT_EQ(gate.Enter().status().code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(gate.WaitUntilIdle(1));
  std::thread leaver([&pass] { pass.reset(); });
  EXPECT_TRUE(gate.WaitUntilIdle(20'000));
  leaver.join();
}

}  // namespace
}  // namespace baton
