#include "loadtest/mock_times.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(MockTimes, TokensComeAtTheirTimes) {
  const MockTimes times = {.ttft_us = 100, .itl_us = 5};
  EXPECT_THAT(TokenTimes(times, 1000, 3), ElementsAre(1100, 1105, 1110));
  EXPECT_THAT(TokenTimes(times, 1000, 0), IsEmpty());
}

TEST(MockTimes, WhatIsDueInAStallComesAtItsEnd) {
  // Stalled from 900 to 1000, from 1900 to 2000, …
  const MockTimes times = {.ttft_us = 100, .itl_us = 40, .stall_us = 100, .stall_every_us = 1000};
  EXPECT_THAT(TokenTimes(times, 700, 4), ElementsAre(800, 840, 880, 1000));
  EXPECT_THAT(TokenTimes(times, 800, 2), ElementsAre(1000, 1040));
  EXPECT_THAT(TokenTimes(times, 899, 1), ElementsAre(1000));
  EXPECT_THAT(TokenTimes(times, 1799, 2), ElementsAre(1899, 2000));
}

}  // namespace
}  // namespace baton
