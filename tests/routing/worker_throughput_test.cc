#include "routing/worker_throughput.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(WorkerThroughput, BeginsWithPlausibleEstimates) {
  const WorkerThroughput speeds;
  EXPECT_GT(speeds.PrefillUs(0, 100), 10'000);
  EXPECT_LT(speeds.PrefillUs(0, 100), 100'000);
  EXPECT_GT(speeds.HandOffUs(), 0);
  EXPECT_GT(speeds.StepUs(16), speeds.StepUs(1));
  EXPECT_GT(speeds.TransferUs(100 << 20), speeds.TransferUs(1 << 20));
}

TEST(WorkerThroughput, NoTokensTakeNoTime) {
  const WorkerThroughput speeds;
  EXPECT_EQ(speeds.PrefillUs(100, 100), 0);
  EXPECT_EQ(speeds.PrefillUs(101, 100), 0);
  EXPECT_EQ(speeds.TransferUs(0), 0);
  EXPECT_EQ(speeds.StepUs(0), speeds.StepUs(1));
}

// 10 us for a token, plus 0.01 us for each token before it.
int64_t TrueUs(int64_t cached, int64_t computed) {
  return computed * 10 + (cached * computed + computed * computed / 2) / 100;
}

TEST(WorkerThroughput, PrefillTimeDependsOnThePositionOfTheComputedTokens) {
  WorkerThroughput speeds;
  for (int i = 0; i < 20; ++i) {
    for (const int64_t tokens : {500, 2000, 8000}) {
      speeds.ObservePrefill(0, tokens, TrueUs(0, tokens));
    }
  }
  for (const auto& [cached, computed] : {std::pair<int64_t, int64_t>(0, 1000), {6000, 1000}}) {
    const auto want = static_cast<double>(TrueUs(cached, computed));
    EXPECT_NEAR(speeds.PrefillUs(cached, cached + computed), want, want / 20);
  }
}

TEST(WorkerThroughput, AFewTokensChangeTheEstimateLittle) {
  WorkerThroughput speeds;
  const double before = speeds.PrefillUs(0, 1000);
  speeds.ObservePrefill(0, 1, 100'000);  // a whole step for one token
  EXPECT_LT(speeds.PrefillUs(0, 1000), before * 4);
  speeds.ObservePrefill(0, 2000, TrueUs(0, 2000));
  EXPECT_LT(speeds.PrefillUs(0, 1000), before);
}

TEST(WorkerThroughput, TransfersHaveALatencyAndABandwidth) {
  WorkerThroughput speeds;
  for (int i = 0; i < 30; ++i) {
    for (const int64_t mib : {1, 4, 16, 64}) {
      speeds.ObserveTransfer(mib << 20, 200 + (mib << 20) / 5000);  // 5 GB/s
    }
  }
  EXPECT_NEAR(speeds.TransferUs(32 << 20), 200 + (32 << 20) / 5000, 300);
}

TEST(WorkerThroughput, AStepGrowsWithItsBatch) {
  WorkerThroughput speeds;
  for (int i = 0; i < 30; ++i) {
    for (const int64_t batch : {1, 4, 16, 30}) speeds.ObserveStep(batch, 6000 + 50 * batch);
  }
  EXPECT_NEAR(speeds.StepUs(1), 6050, 100);
  EXPECT_NEAR(speeds.StepUs(32), 7600, 150);
}

TEST(WorkerThroughput, ImpossibleFiguresAreIgnored) {
  WorkerThroughput speeds;
  speeds.ObservePrefill(-1, 100, 5);
  speeds.ObservePrefill(0, 0, 5);
  speeds.ObservePrefill(0, 1000, 0);
  speeds.ObservePrefill(0, 1000, -5);
  speeds.ObserveTransfer(0, 5);
  speeds.ObserveTransfer(1000, 0);
  speeds.ObserveStep(0, 5);
  speeds.ObserveStep(5, 0);
  const WorkerThroughput fresh;
  EXPECT_EQ(speeds.PrefillUs(0, 1000), fresh.PrefillUs(0, 1000));
  EXPECT_EQ(speeds.TransferUs(1000), fresh.TransferUs(1000));
  EXPECT_EQ(speeds.StepUs(5), fresh.StepUs(5));
}

TEST(WorkerThroughput, TheHandOffEstimateHasBounds) {
  WorkerThroughput speeds;
  for (int i = 0; i < 100; ++i) speeds.ObserveHandOff(60'000'000);
  EXPECT_LE(speeds.HandOffUs(), 20'000);
  for (int i = 0; i < 1000; ++i) speeds.ObserveHandOff(-5);
  EXPECT_GE(speeds.HandOffUs(), 1);
  EXPECT_LT(speeds.HandOffUs(), 1000);
}

}  // namespace
}  // namespace baton
