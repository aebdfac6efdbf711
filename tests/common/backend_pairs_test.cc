#include "common/backend_pairs.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(BackendPairs, ABackendIsConfirmedWithItself) {
  EXPECT_TRUE(IsConfirmedPair("cpu", "cpu"));
  EXPECT_TRUE(IsConfirmedPair("cuda", "cuda"));
}

TEST(BackendPairs, DifferentBackendsNeedATest) {
  EXPECT_FALSE(IsConfirmedPair("cpu", "cuda"));
  EXPECT_FALSE(IsConfirmedPair("cpu", ""));
}

TEST(BackendPairs, AConfirmedPairHoldsInEitherOrderAndForNoThird) {
  constexpr BackendPair kConfirmed[] = {{"cpu", "cuda"}, {"cuda", "hip"}};
  EXPECT_TRUE(IsConfirmedPair("cpu", "cuda", kConfirmed));
  EXPECT_TRUE(IsConfirmedPair("cuda", "cpu", kConfirmed));
  EXPECT_FALSE(IsConfirmedPair("cpu", "hip", kConfirmed));
}

}  // namespace
}  // namespace baton
