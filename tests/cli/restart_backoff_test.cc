#include "cli/restart_backoff.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(RestartBackoff, DoublesUpToItsLimitAndBeginsAnewAfterAGoodRun) {
  RestartBackoff backoff;
  EXPECT_EQ(backoff.NextDelayMs(10), 500);
  EXPECT_EQ(backoff.NextDelayMs(10), 1000);
  EXPECT_EQ(backoff.NextDelayMs(RestartBackoff::kWellMs - 1), 2000);
  for (int i = 0; i < 40; ++i) backoff.NextDelayMs(0);
  EXPECT_EQ(backoff.NextDelayMs(0), RestartBackoff::kMostMs);
  EXPECT_EQ(backoff.NextDelayMs(RestartBackoff::kWellMs), 500);
  EXPECT_EQ(backoff.NextDelayMs(10), 1000);
}

}  // namespace
}  // namespace baton
