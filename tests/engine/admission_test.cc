#include "engine/admission.h"

#include <gtest/gtest.h>

#include "tests/engine/machine_bench.h"

namespace baton {
namespace {

using testing::Test;

class AdmissionTest : public Test {
 protected:
  // Leases a prefix of 8 cached tokens, until a sequence needs the room.
  void Lease() {
    const std::vector<TokenId> prefix = Bytes("01234567");
    bench_.Cache(prefix);
    auto record = std::make_shared<PullRecord>();
    bench_.pulls.Pull(77, {.tokens = prefix, .cache_namespace = CacheNamespace(0)},
                      std::make_shared<RecordingPullSink>(record), /*spare_blocks=*/0);
    ASSERT_TRUE(bench_.pulls.has_leases());
  }
  void TearDown() override { bench_.pulls.Shutdown(absl::CancelledError("over")); }

  MachineBench bench_{/*num_blocks=*/8, /*max_waiting=*/1};
};

TEST_F(AdmissionTest, AFullQueueDropsItsLastRequestOfLowerPriority) {
  ASSERT_TRUE(bench_.admission.Queue(MachineBench::Spec(1, 4)).ok());
  ASSERT_TRUE(bench_.admission.Queue(MachineBench::Spec(2, 4, /*priority=*/3)).ok());
  ASSERT_EQ(bench_.ended.size(), 1);
  EXPECT_EQ(bench_.ended[0].first, 1);
  EXPECT_EQ(bench_.ended[0].second, absl::ResourceExhaustedError(
                                        "the queue of 1 sequences is full; a request of priority 3 "
                                        "displaced this one of priority 0"));
  EXPECT_TRUE(absl::IsResourceExhausted(bench_.admission.Queue(MachineBench::Spec(3, 4, 3))));
  EXPECT_EQ(bench_.ended.size(), 1) << "no queued request has a lower priority";
}

TEST_F(AdmissionTest, LeasesYieldToAHandOffOnlyWithoutOtherRoom) {
  Lease();
  ASSERT_TRUE(bench_.admission.AdmitForKv(MachineBench::Spec(1, 16), /*queues=*/false).ok());
  EXPECT_TRUE(bench_.pulls.has_leases());
  ASSERT_TRUE(bench_.admission.AdmitForKv(MachineBench::Spec(2, 12), /*queues=*/false).ok());
  EXPECT_FALSE(bench_.pulls.has_leases());
  EXPECT_TRUE(absl::IsResourceExhausted(
      bench_.admission.AdmitForKv(MachineBench::Spec(3, 16), /*queues=*/false)));
}

TEST_F(AdmissionTest, AHandOffMayWaitInTheQueue) {
  ASSERT_TRUE(bench_.admission.AdmitForKv(MachineBench::Spec(1, 20), /*queues=*/true).ok());
  EXPECT_EQ(bench_.scheduler.phase(SequenceId(1)), SequencePhase::kWaitingForKv) << "there is room";
  ASSERT_TRUE(bench_.admission.AdmitForKv(MachineBench::Spec(2, 16), /*queues=*/true).ok());
  EXPECT_EQ(bench_.scheduler.phase(SequenceId(2)), SequencePhase::kWaiting);
  EXPECT_TRUE(absl::IsResourceExhausted(
      bench_.admission.AdmitForKv(MachineBench::Spec(3, 16), /*queues=*/true)))
      << "the queue has one place";
  bench_.scheduler.Finish(SequenceId(1), /*keep_cached=*/false);
  EXPECT_EQ(bench_.scheduler.Schedule().awaiting_kv, std::vector<SequenceId>{SequenceId(2)});
}

TEST_F(AdmissionTest, LeasesYieldWhenAStepCannotAdmitOrNothingRuns) {
  const SequenceId id(1);
  SchedulerOutput runs;
  runs.chunks.push_back({.id = id, .begin = 0, .count = 1});
  Lease();
  bench_.admission.YieldLeases(runs, /*in_flight=*/0);
  bench_.admission.YieldLeases({}, /*in_flight=*/1);
  EXPECT_TRUE(bench_.pulls.has_leases()) << "all sequences have room";
  bench_.admission.YieldLeases({}, /*in_flight=*/0);
  EXPECT_FALSE(bench_.pulls.has_leases()) << "nothing runs";
  Lease();
  SchedulerOutput preempts = runs;
  preempts.preempted.push_back(id);
  bench_.admission.YieldLeases(preempts, /*in_flight=*/0);
  EXPECT_FALSE(bench_.pulls.has_leases()) << "a sequence was preempted";
  Lease();
  ASSERT_TRUE(bench_.admission.Queue(MachineBench::Spec(2, 4)).ok());
  bench_.admission.YieldLeases(runs, /*in_flight=*/0);
  EXPECT_FALSE(bench_.pulls.has_leases()) << "a sequence waits and was not admitted";
}

TEST_F(AdmissionTest, CountsABlockForEachSequenceAndNamesWhatAPromptNeeds) {
  EXPECT_EQ(bench_.admission.SpareBlocks(), 0);
  ASSERT_TRUE(bench_.admission.AdmitForKv(MachineBench::Spec(1, 4), /*queues=*/false).ok());
  ASSERT_TRUE(bench_.admission.Queue(MachineBench::Spec(2, 10)).ok());
  EXPECT_EQ(bench_.admission.SpareBlocks(), 2);
  EXPECT_EQ(bench_.admission.Exhausted(SequenceId(2), 10),
            absl::ResourceExhaustedError("the KV pool of 8 blocks cannot hold the prompt of 10 "
                                         "tokens, which needs 3 blocks now"));
}

}  // namespace
}  // namespace baton
