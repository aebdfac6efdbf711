// The scheduler with steps in flight: plans after chunks and tokens that are not collected yet.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "scheduler/scheduler.h"
#include "tests/common/random_operations.h"
#include "tests/scheduler/pipelined_bench.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr SequenceId kOne{1};
constexpr SequenceId kTwo{2};

TEST(SchedulerSteps, ADecodeRowUsesTheTokenThatThePreviousStepSamples) {
  PipelinedBench bench(Pool(16), Budget(16));
  ASSERT_TRUE(bench.Add(1, Prompt(6), 3).ok());
  const SchedulerOutput prefill = bench.Submit();
  ASSERT_EQ(prefill.chunks.size(), 1u);
  EXPECT_TRUE(prefill.chunks[0].samples);
  EXPECT_FALSE(prefill.chunks[0].pending);
  const SchedulerOutput decode = bench.Submit();
  ASSERT_EQ(decode.chunks.size(), 1u);
  EXPECT_TRUE(decode.chunks[0].pending);
  EXPECT_EQ(decode.chunks[0].begin, 6);
  EXPECT_EQ(decode.chunks[0].count, 1);
  bench.Collect();
  EXPECT_EQ(bench.scheduler().tokens(kOne).size(), 7u);
  EXPECT_EQ(bench.cache().committed(kOne), 6);
  EXPECT_EQ(bench.Submit().chunks.size(), 1u);
  bench.Collect();
  EXPECT_THAT(bench.Submit().chunks, IsEmpty()) << "the third token is the last";
  bench.Collect();
  EXPECT_FALSE(bench.scheduler().Contains(kOne));
  EXPECT_EQ(bench.wasted(), 0);
  bench.ExpectAllCorrect();
}

TEST(SchedulerSteps, APrefillContinuesBehindAChunkInFlight) {
  PipelinedBench bench(Pool(16), Budget(8));
  ASSERT_TRUE(bench.Add(1, Prompt(20), 1).ok());
  EXPECT_EQ(bench.Submit().chunks.at(0).begin, 0);
  EXPECT_EQ(bench.Submit().chunks.at(0).begin, 8);
  EXPECT_EQ(bench.cache().committed(kOne), 0)
      << "nothing is committed before the step is collected";
  bench.Collect();
  EXPECT_EQ(bench.cache().committed(kOne), 8);
  const SchedulerOutput last = bench.Submit();
  EXPECT_EQ(last.chunks.at(0).begin, 16);
  EXPECT_TRUE(last.chunks.at(0).samples);
  bench.Collect();
  bench.Collect();
  bench.ExpectAllCorrect();
  EXPECT_EQ(bench.outputs().at(kOne).size(), 1u);
}

TEST(SchedulerSteps, ASequenceWaitsForTokensThatTheHostSamples) {
  PipelinedBench bench(Pool(16), Budget(16));
  bench.host_draws = [](SequenceId) { return true; };
  ASSERT_TRUE(bench.Add(1, Prompt(6), 3).ok());
  bench.Submit();
  EXPECT_THAT(bench.Submit().chunks, IsEmpty());
  EXPECT_FALSE(bench.scheduler().has_work());
  bench.Collect();
  EXPECT_TRUE(bench.scheduler().has_work());
  EXPECT_FALSE(bench.Submit().chunks.at(0).pending);
}

TEST(SchedulerSteps, ALateStopCostsARowAndHoldsItsBlocksUntilTheStepIsCollected) {
  PipelinedBench bench(Pool(4), Budget(16));
  bench.stops_at = [](SequenceId, TokenId) { return true; };
  ASSERT_TRUE(bench.Add(1, Prompt(8), 5).ok());
  bench.Submit();
  ASSERT_TRUE(bench.Submit().chunks.at(0).pending);
  bench.Collect();
  EXPECT_FALSE(bench.scheduler().Contains(kOne));
  EXPECT_EQ(bench.cache().step_blocks(), 1)
      << "two blocks are cached, and the row has its own block";
  EXPECT_EQ(bench.cache().available_blocks(), 1);
  bench.Collect();
  EXPECT_EQ(bench.wasted(), 1);
  EXPECT_EQ(bench.cache().step_blocks(), 0);
  EXPECT_EQ(bench.cache().available_blocks(), 4);
  EXPECT_EQ(bench.outputs().at(kOne).size(), 1u);
  bench.ExpectAllCorrect();
}

TEST(SchedulerSteps, ARowOnAPendingTokenWaitsInsteadOfPreempting) {
  PipelinedBench bench(Pool(4), Budget(16));
  ASSERT_TRUE(bench.Add(1, Prompt(7), 9).ok());
  ASSERT_TRUE(bench.Add(2, Prompt(7, 9), 9).ok());
  ASSERT_EQ(bench.Submit().chunks.size(), 1u)
      << "a block for growth is kept for the first sequence";
  bench.Collect();
  while (bench.scheduler().has_work() || bench.in_flight() > 0) {
    if (bench.in_flight() < 2 && bench.scheduler().has_work()) {
      const SchedulerOutput plan = bench.Submit();
      const bool only_pending =
          std::all_of(plan.chunks.begin(), plan.chunks.end(),
                      [](const ScheduledChunk& chunk) { return chunk.pending; });
      if (only_pending && !plan.chunks.empty()) {
        EXPECT_THAT(plan.preempted, IsEmpty());
        EXPECT_THAT(plan.exhausted, IsEmpty());
      }
    }
    if (bench.in_flight() == 2 || !bench.scheduler().has_work()) {
      if (bench.in_flight() > 0) bench.Collect();
    }
  }
  EXPECT_EQ(bench.outputs().size(), 2u);
  bench.ExpectAllCorrect();
}

TEST(SchedulerSteps, BlocksThatAreSwappedAtCommitAreHeldForTheStepBehind) {
  PipelinedBench bench(Pool(32), Budget(16));
  ASSERT_TRUE(bench.Add(1, Prompt(8), 4).ok());
  ASSERT_TRUE(bench.Add(2, Prompt(8), 4).ok());  // in parallel: nothing is cached yet
  ASSERT_EQ(bench.Submit().chunks.size(), 2u);
  ASSERT_EQ(bench.Submit().chunks.size(), 2u);
  const std::vector<BlockId> own(bench.cache().BlockTable(kTwo).begin(),
                                 bench.cache().BlockTable(kTwo).begin() + 2);
  bench.Collect();
  for (int32_t i : {0, 1}) {
    EXPECT_EQ(bench.cache().BlockTable(kTwo)[i], bench.cache().BlockTable(kOne)[i]);
  }
  EXPECT_EQ(bench.scheduler().step_holds().Held(), own);
  EXPECT_EQ(bench.cache().step_blocks(), 2) << "the step in flight still reads them";
  bench.Collect();
  EXPECT_EQ(bench.cache().step_blocks(), 0);
  while (bench.scheduler().has_work() || bench.in_flight() > 0) {
    if (bench.scheduler().has_work() && bench.in_flight() < 2) bench.Submit();
    if (bench.in_flight() > 0) bench.Collect();
  }
  EXPECT_EQ(bench.outputs().size(), 2u);
  bench.ExpectAllCorrect();
}

class RandomSteps {
 public:
  explicit RandomSteps(uint32_t seed)
      : random_(seed), pool_(RandomPool()), bench_(pool_, RandomOptions()) {
    const uint32_t host = 2 + random_() % 4;
    bench_.host_draws = [host](SequenceId id) { return id.value() % host == 0; };
    const TokenId stop = static_cast<TokenId>(random_() % 10);
    bench_.stops_at = [stop](SequenceId id, TokenId token) {
      return id.value() % 3 == 0 && token % 10 == stop;
    };
    depth_ = random_() % 4 == 0 ? 1 : 2;
  }

  void Event() {
    switch (random_() % 12) {
      case 0:
      case 1:
        return Arrive();
      case 2:
        return ForSome([&](SequenceId id) { bench_.Cancel(id); });
      case 3:
        return ForSome([&](SequenceId id) { Land(id); });
      case 4:
        bench_.cache().ClearCache();
        return;
      case 5:
        if (pool_.max_blocks == 0) return;
        ASSERT_TRUE(bench_.cache().Resize(1 + random_() % pool_.max_blocks).ok());
        for (const SequenceId id : bench_.scheduler().PoolResized()) bench_.Finish(id);
        return;
      case 6:
      case 7:
      case 8:
        if (bench_.in_flight() > 0) bench_.Collect(/*failed=*/random_() % 40 == 0);
        return;
      default:
        if (bench_.in_flight() < depth_ && bench_.scheduler().has_work()) bench_.Submit();
    }
  }
  void Drain() {
    if (pool_.max_blocks > 0) {
      ASSERT_TRUE(bench_.cache().Resize(pool_.max_blocks).ok());
    }
    std::vector<SequenceId> waiting;
    for (const SequenceId id : live_) Land(id);
    int steps = 0;
    while (bench_.scheduler().has_work() || bench_.in_flight() > 0) {
      ASSERT_LT(++steps, 20'000) << "no progress";
      if (bench_.scheduler().has_work() && bench_.in_flight() < depth_) bench_.Submit();
      const bool full = bench_.in_flight() == depth_ || !bench_.scheduler().has_work();
      if (bench_.in_flight() > 0 && full) bench_.Collect();
      for (const SequenceId id : live_) Land(id);  // hand-offs that have left the queue
    }
    for (const SequenceId id : live_) {
      EXPECT_FALSE(bench_.scheduler().Contains(id)) << "sequence " << id << " is stuck";
    }
    bench_.ExpectAllCorrect();
    EXPECT_EQ(bench_.cache().step_blocks(), 0);
    EXPECT_EQ(bench_.cache().available_blocks(), bench_.cache().num_blocks());
  }
  PipelinedBench& bench() { return bench_; }

 private:
  KvCacheOptions RandomPool() {
    KvCacheOptions pool = Pool(4 + random_() % 30, 1 << random_() % 4);
    if (random_() % 3 == 0) pool.max_blocks = pool.num_blocks + random_() % 10;
    pool.paged = random_() % 8 != 0;
    const uint32_t kind = random_() % 6;
    pool.kind = !pool.paged || kind == 0 ? CacheKind::kNaive
                : kind == 1              ? CacheKind::kChunkOnly
                                         : CacheKind::kRadix;
    return pool;
  }
  SchedulerOptions RandomOptions() {
    SchedulerOptions options = Budget(1 + random_() % 40, 1 + random_() % 8);
    options.max_chunk_tokens = 1 + random_() % 20;
    options.insert_chunks = random_() % 4 != 0;
    return options;
  }
  void Arrive() {
    const int32_t most = std::min(40, bench_.cache().num_blocks() * pool_.block_size);
    const int32_t length = 1 + random_() % most;
    std::vector<TokenId> prompt = Prompt(length, static_cast<TokenId>(random_() % 2));
    const int32_t own = random_() % length;
    for (int32_t i = length - own; i < length; ++i) prompt[i] = random_() % 3;
    SequenceSpec spec = bench_.Spec(next_++, prompt, 1 + random_() % 25, random_() % 2);
    const bool hand_off = random_() % 3 == 0;
    spec.awaits_kv = !hand_off && random_() % 4 == 0;
    const absl::Status status =
        hand_off ? bench_.scheduler().AddWaitingForKv(spec) : bench_.scheduler().Add(spec);
    if (status.ok()) live_.push_back(spec.id);
  }
  void Land(SequenceId id) {
    if (!bench_.scheduler().Contains(id)) return;
    if (bench_.scheduler().phase(id) != SequencePhase::kWaitingForKv) return;
    const int32_t matched = bench_.cache().committed(id);
    const int32_t missing = static_cast<int32_t>(bench_.scheduler().tokens(id).size()) - matched;
    bench_.KvArrives(id, matched + (random_() % 3 == 0 ? random_() % missing : missing));
  }
  template <typename Act>
  void ForSome(const Act& act) {
    std::erase_if(live_, [&](SequenceId id) { return !bench_.scheduler().Contains(id); });
    if (!live_.empty()) act(live_[random_() % live_.size()]);
  }

  std::mt19937 random_;
  const KvCacheOptions pool_;
  PipelinedBench bench_;
  int32_t depth_;
  uint64_t next_ = 1;
  std::vector<SequenceId> live_;
};

TEST(SchedulerStepsRandom, EverySequenceGetsEveryTokenOnceWithAnyStepsInFlight) {
  int64_t finished = 0, preempted = 0, wasted = 0;
  constexpr int kSeeds = RandomSeeds(400);
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    RandomSteps run(seed);
    for (int event = 0; event < 1'000; ++event) {
      run.Event();
      ASSERT_FALSE(testing::Test::HasFailure()) << "event " << event;
    }
    run.Drain();
    ASSERT_FALSE(testing::Test::HasFailure());
    finished += static_cast<int64_t>(run.bench().outputs().size());
    preempted += run.bench().scheduler().preemption_count();
    wasted += run.bench().wasted();
  }
  EXPECT_GT(finished, 12 * kSeeds);
  EXPECT_GT(preempted, kSeeds);
  EXPECT_GT(wasted, 2 * kSeeds);
}

}  // namespace
}  // namespace baton
