// Chunked prompts in the scheduler: admission with parts, their order, sharing, preemption,
// eviction of chunks, and random workloads against a model that knows every token.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "tests/common/random_operations.h"
#include "tests/scheduler/chunked_prompts_bench.h"
#include "tests/scheduler/scheduler_bench.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<TokenId> Text(int32_t length, TokenId first) {
  std::vector<TokenId> tokens(length);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// Two chunks of 8 tokens behind 6 system tokens, in blocks of 4: 2 + 2 + 2 blocks, and the
// question's.
ChunkedRequest TwoChunks() {
  return {.system = Text(6, 1), .chunks = {Text(8, 100), Text(8, 200)}, .question = Text(3, 300)};
}

std::vector<int32_t> Counts(const SchedulerOutput& plan) {
  std::vector<int32_t> counts;
  for (const ScheduledChunk& chunk : plan.chunks) counts.push_back(chunk.count);
  return counts;
}

TEST(SchedulerParts, MissingPartsAreComputedInOneStepThenTheQuestion) {
  ChunkedBench bench(Pool(64), Budget(100), {.share = 0.5});
  ASSERT_TRUE(bench.AddChunked(1, TwoChunks(), 2).ok());
  const SchedulerOutput parts = bench.Step();
  EXPECT_THAT(parts.admitted, ElementsAre(SequenceId(1)));
  EXPECT_THAT(Counts(parts), ElementsAre(6, 8, 8));
  const SchedulerOutput question = bench.Step();
  EXPECT_THAT(Counts(question), ElementsAre(3));
  EXPECT_TRUE(question.chunks[0].samples);
  EXPECT_TRUE(question.chunks[0].framed);
  bench.Drain();
  EXPECT_EQ(bench.outputs().at(SequenceId(1)).size(), 2u);
}

TEST(SchedulerParts, AFullHitComputesTheQuestionAlone) {
  for (const int32_t block_size : {1, 2, 4, 8, 16}) {
    ChunkedBench bench(Pool(512, block_size), Budget(100), {.share = 0.5});
    ASSERT_TRUE(bench.AddChunked(1, TwoChunks(), 2).ok());
    bench.Drain();
    const int64_t before = bench.part_tokens();
    ChunkedRequest swapped = TwoChunks();
    std::swap(swapped.chunks[0], swapped.chunks[1]);
    ASSERT_TRUE(bench.AddChunked(2, swapped, 2).ok());
    EXPECT_THAT(Counts(bench.Step()), ElementsAre(3)) << "block size " << block_size;
    bench.Drain();
    EXPECT_EQ(bench.part_tokens(), before);
  }
}

// Found by a random workload: the sequence had no row, and the scheduler reported no work.
TEST(SchedulerParts, AReadyRequestThatLacksOneTokenRunsAtOnce) {
  ChunkedBench bench(Pool(64), Budget(100), {.share = 0.5});
  ChunkedRequest request = TwoChunks();
  ASSERT_TRUE(bench.AddChunked(1, request, 1).ok());
  bench.Drain();
  request.question = Text(1, 300);
  ASSERT_TRUE(bench.AddChunked(2, request, 2).ok());
  EXPECT_THAT(Counts(bench.Step()), ElementsAre(1));
  bench.Drain();
}

TEST(SchedulerParts, PartsThatSeeOthersAreNotPlannedBeforeThem) {
  // The budget ends inside the system part, which is longer than the chunks.
  ChunkedRequest request = TwoChunks();
  request.system = Text(20, 1);
  ChunkedBench bench(Pool(64), Budget(16), {.share = 0.5});
  ASSERT_TRUE(bench.AddChunked(1, request, 1).ok());
  EXPECT_THAT(Counts(bench.Step()), ElementsAre(16));
  EXPECT_THAT(Counts(bench.Step()), ElementsAre(4, 8, 4));
  EXPECT_THAT(Counts(bench.Step()), ElementsAre(4));
  EXPECT_THAT(Counts(bench.Step()), ElementsAre(3));
  bench.Drain();
}

TEST(SchedulerParts, APartWaitsForAPartThatAnotherRequestComputes) {
  ChunkedRequest request = TwoChunks();
  request.system = Text(20, 1);
  ChunkedBench bench(Pool(64), Budget(10), {.share = 0.5});
  ASSERT_TRUE(bench.AddChunked(1, request, 1).ok());
  EXPECT_THAT(Counts(bench.Step()), ElementsAre(10));
  // The short chunk would get a share before the rest of the system part.
  request.chunks = {Text(3, 500)};
  ASSERT_TRUE(bench.AddChunked(2, request, 1, /*priority=*/1).ok());
  EXPECT_THAT(Counts(bench.Step()), ElementsAre(7));
  EXPECT_THAT(Counts(bench.Step()), ElementsAre(3, 3, 4));
  bench.Drain();
}

TEST(SchedulerParts, PartsThatCannotRunYetLeaveTheBudgetToOthers) {
  ChunkedRequest request = TwoChunks();
  request.system = Text(100, 1);
  SchedulerOptions options = Budget(32);
  options.max_chunk_tokens = 16;
  ChunkedBench bench(Pool(64), options, {.share = 0.5});
  ASSERT_TRUE(bench.AddChunked(1, request, 1).ok());
  EXPECT_THAT(Counts(bench.Step()), ElementsAre(16));
  ASSERT_TRUE(bench.AddOrdinary(2, Text(16, 500), 1).ok());
  EXPECT_THAT(Counts(bench.Step()), ElementsAre(16, 16));
  bench.Drain();
}

TEST(SchedulerParts, PiecesOfALongChunkFollowEachOther) {
  ChunkedRequest request = TwoChunks();
  request.piece_tokens = 3;
  ChunkedBench bench(Pool(64), Budget(10), {.share = 0.5});
  ASSERT_TRUE(bench.AddChunked(1, request, 1).ok());
  EXPECT_THAT(Counts(bench.Step()), ElementsAre(6, 3, 1));
  EXPECT_THAT(Counts(bench.Step()), ElementsAre(2, 2, 3, 3));
  EXPECT_THAT(Counts(bench.Step()), ElementsAre(2));
  bench.Drain();
}

TEST(SchedulerParts, AStepHasAtMostThirtyTwoParts) {
  ChunkedRequest request{.system = {}, .chunks = {}, .question = Text(1, 1)};
  for (int32_t i = 0; i < 50; ++i) request.chunks.push_back(Text(2, 10 * (i + 1)));
  ChunkedBench bench(Pool(512), Budget(512), {.share = 0.5});
  ASSERT_TRUE(bench.AddChunked(1, request, 1).ok());
  EXPECT_EQ(bench.Step().chunks.size(), 32u);
  EXPECT_EQ(bench.Step().chunks.size(), 18u);
  bench.Drain();
}

TEST(SchedulerParts, ConcurrentRequestsComputeASharedPartOnce) {
  ChunkedBench bench(Pool(64), Budget(16), {.share = 0.5});
  ASSERT_TRUE(bench.AddChunked(1, TwoChunks(), 2).ok());
  ASSERT_TRUE(bench.AddChunked(2, TwoChunks(), 2).ok());
  bench.Drain();
  EXPECT_EQ(bench.part_tokens(), 6 + 8 + 8);
}

TEST(SchedulerParts, APartGoesOnForTheRequestsThatStillWait) {
  ChunkedBench bench(Pool(64), Budget(40), {.share = 0});  // nothing is cached
  ChunkedRequest slow = TwoChunks();
  slow.chunks[1] = Text(60, 400);
  ASSERT_TRUE(bench.AddChunked(1, slow, 2).ok());
  bench.Step();
  ASSERT_TRUE(bench.AddChunked(2, TwoChunks(), 2).ok());
  bench.Step();
  bench.Cancel(SequenceId(1));
  bench.Check();
  bench.Drain();
  EXPECT_EQ(bench.outputs().at(SequenceId(2)).size(), 2u);
  EXPECT_TRUE(bench.parts().empty());
}

TEST(SchedulerParts, AWaitedForPartRisesToTheHigherPriority) {
  ChunkedBench bench(Pool(128), Budget(8), {.share = 0});
  ASSERT_TRUE(bench.AddChunked(1, TwoChunks(), 1, /*priority=*/0).ok());
  bench.Step();
  ASSERT_TRUE(bench.AddOrdinary(2, Text(80, 500), 1, /*priority=*/1).ok());
  ASSERT_TRUE(bench.AddChunked(3, TwoChunks(), 1, /*priority=*/2).ok());
  // The parts of request 1 go before request 2, because request 3 waits for them.
  for (const ScheduledChunk& chunk : bench.Step().chunks) EXPECT_NE(chunk.id, SequenceId(2));
  bench.Drain();
}

TEST(SchedulerParts, AQueuedRequestHoldsNothingAndNothingPassesIt) {
  ChunkedBench bench(Pool(16), Budget(100), {.share = 0.5});
  ASSERT_TRUE(bench.AddOrdinary(1, Text(48, 500), 4).ok());  // 12 of 16 blocks
  bench.Step();
  ASSERT_TRUE(bench.AddChunked(2, TwoChunks(), 2).ok());  // 7 blocks
  ASSERT_TRUE(bench.AddOrdinary(3, Text(4, 900), 1).ok());
  const SchedulerOutput plan = bench.Step();
  EXPECT_THAT(plan.admitted, IsEmpty());
  bench.Check();
  bench.Drain();
  EXPECT_EQ(bench.outputs().size(), 3u);
}

TEST(SchedulerParts, ARequestThatCanNeverFitIsRefused) {
  ChunkedBench bench(Pool(6), Budget(100), {.share = 0.5});
  const absl::Status status = bench.AddChunked(1, TwoChunks(), 2);
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(status.message(),
              HasSubstr("3 tokens and 6 blocks of prompt chunks need 7 blocks of 4 tokens"));
  ChunkedBench exact(Pool(7), Budget(100), {.share = 0.5});
  ASSERT_TRUE(exact.AddChunked(1, TwoChunks(), 1).ok());
  exact.Drain();
}

TEST(SchedulerParts, AnOrdinaryRequestEvictsChunksOnlyIfNothingElseMakesRoom) {
  ChunkedBench bench(Pool(20), Budget(100), {.share = 0.5});
  ASSERT_TRUE(bench.AddChunked(1, TwoChunks(), 2).ok());
  bench.Drain();
  const int32_t used = bench.chunks().Stats().used_blocks;
  EXPECT_EQ(used, 5);  // the full system block is in the tree
  ASSERT_TRUE(bench.AddOrdinary(2, Text(4 * 15, 500), 1).ok());
  bench.Drain();
  EXPECT_EQ(bench.chunks().Stats().used_blocks, used);
  ASSERT_TRUE(bench.AddOrdinary(3, Text(4 * 16, 700), 1).ok());
  bench.Drain();
  EXPECT_LT(bench.chunks().Stats().used_blocks, used);
  EXPECT_GT(bench.chunks().Stats().used_blocks, 0);
  ASSERT_TRUE(bench.AddOrdinary(4, Text(4 * 20, 900), 1).ok());
  bench.Drain();
  EXPECT_EQ(bench.chunks().Stats().used_blocks, 0);
}

TEST(SchedulerParts, AGrowingSequenceEvictsChunksBeforeItEndsEarly) {
  ChunkedBench bench(Pool(12), Budget(100), {.share = 0.5});
  ASSERT_TRUE(bench.AddChunked(1, TwoChunks(), 2).ok());
  bench.Drain();
  ASSERT_TRUE(bench.AddOrdinary(2, Text(24, 500), 23).ok());
  bench.Drain();
  EXPECT_EQ(bench.outputs().at(SequenceId(2)).size(), 23u);
  EXPECT_GT(bench.chunks().Stats().evictions, 0);
}

TEST(SchedulerParts, AHandOffEvictsChunksOnlyIfThatIsEnough) {
  ChunkedBench bench(Pool(20), Budget(100), {.share = 0.5});
  ASSERT_TRUE(bench.AddChunked(1, TwoChunks(), 2).ok());
  bench.Drain();
  ASSERT_TRUE(bench.AddOrdinary(2, Text(8, 500), 30).ok());
  bench.Step();
  const int32_t used = bench.chunks().Stats().used_blocks;
  EXPECT_FALSE(bench.AddOrdinary(3, Text(4 * 19, 700), 1, 0, /*hand_off=*/true).ok());
  EXPECT_EQ(bench.chunks().Stats().used_blocks, used);
  EXPECT_TRUE(bench.AddOrdinary(4, Text(4 * 16, 700), 1, 0, /*hand_off=*/true).ok());
  EXPECT_LT(bench.chunks().Stats().used_blocks, used);
  bench.HandOffsFail();
  bench.Drain();
}

TEST(SchedulerParts, APreemptedRequestDropsItsPartsAndComesBack) {
  ChunkedBench bench(Pool(15), Budget(100), {.share = 0});
  ASSERT_TRUE(bench.AddOrdinary(1, Text(8, 500), 40).ok());
  ASSERT_TRUE(bench.AddChunked(2, TwoChunks(), 12).ok());
  bench.Drain();
  EXPECT_GT(bench.scheduler().preemption_count(), 0);
  EXPECT_EQ(bench.outputs().at(SequenceId(1)).size(), 40u);
  EXPECT_EQ(bench.outputs().at(SequenceId(2)).size(), 12u);
}

TEST(SchedulerParts, ForksShareTheFrame) {
  ChunkedBench bench(Pool(64), Budget(100), {.share = 0});
  ASSERT_TRUE(bench.AddChunked(1, TwoChunks(), 5, 0, /*forks=*/1).ok());
  bench.Step();
  bench.Step();
  EXPECT_EQ(bench.scheduler().frame(SequenceId(1)), bench.scheduler().frame(SequenceId(500'001)));
  bench.Cancel(SequenceId(1));
  bench.Check();
  bench.Drain();
  EXPECT_EQ(bench.outputs().at(SequenceId(500'001)).size(), 5u);
}

TEST(SchedulerParts, StepsInFlightHoldTheFrameOfAnEndedSequence) {
  ChunkedBench bench(Pool(7), Budget(4), {.share = 0}, /*depth=*/2);
  ASSERT_TRUE(bench.AddChunked(1, TwoChunks(), 1).ok());
  while (bench.scheduler().running_count() == 0) bench.Step();
  bench.Step();
  bench.Cancel(SequenceId(1));
  bench.Check();
  EXPECT_EQ(bench.cache().step_blocks(), 6);  // the full system block is cached too
  bench.Drain();
  EXPECT_EQ(bench.cache().available_blocks(), 7);
}

// ---- random workloads ---------------------------------------------------------------------------

struct Workload {
  uint32_t seed;
  KvCacheOptions pool;
  SchedulerOptions options;
  ChunkCacheOptions chunks;
  int32_t depth = 1;
};

class RandomChunks {
 public:
  explicit RandomChunks(const Workload& workload)
      : random_(workload.seed),
        pool_(workload.pool),
        bench_(workload.pool, workload.options, workload.chunks, workload.depth) {}

  ChunkedRequest Request() {
    ChunkedRequest request;
    request.system = Text(static_cast<int32_t>(random_() % 3) * 5, 1);
    const uint32_t chunks = random_() % 4;
    for (uint32_t i = 0; i < chunks; ++i) {
      const auto which = static_cast<int32_t>(random_() % 5);
      request.chunks.push_back(Text(3 + 4 * which, 100 * (which + 1)));
    }
    request.question = Text(1 + random_() % 9, 900 + random_() % 2);
    request.alone = random_() % 3 == 0;
    request.piece_tokens = random_() % 2 == 0 ? 8 : 1000;
    return request;
  }
  void Event() {
    const auto generate = static_cast<int32_t>(1 + random_() % 20);
    const auto priority = static_cast<int32_t>(random_() % 4 == 0);
    const std::vector<SequenceId> live = bench_.Live();
    switch (random_() % 14) {
      case 0:
      case 1:
      case 2: {
        const ChunkedRequest request = Request();
        if (request.system.empty() && request.chunks.empty()) break;
        const auto forks = static_cast<int32_t>(pool_.paged && random_() % 4 == 0);
        const bool hand_off = random_() % 3 == 0;
        bench_.AddChunked(next_++, request, generate, priority, forks, hand_off).IgnoreError();
        break;
      }
      case 3:
      case 4: {
        std::vector<TokenId> prompt = Text(1 + random_() % 12, 1);  // may be the system part
        if (random_() % 2 == 0) prompt.push_back(static_cast<TokenId>(random_() % 5));
        const bool hand_off = random_() % 3 == 0;
        bench_.AddOrdinary(next_++, prompt, generate, priority, hand_off).IgnoreError();
        break;
      }
      case 5:
        if (!live.empty()) bench_.Cancel(live[random_() % live.size()]);
        break;
      case 6:
        if (random_() % 4 == 0) bench_.chunks().Clear();
        break;
      case 7:
        if (random_() % 4 == 0) bench_.cache().ClearCache();
        break;
      case 8:
        if (random_() % 4 == 0) Resize(pool_.num_blocks / 2 + random_() % pool_.num_blocks / 2);
        break;
      case 9:
        if (random_() % 4 == 0) bench_.HandOffsFail();
        break;
      case 10:
      case 11:
        SomeKvArrives();
        break;
      default:
        break;
    }
    bench_.Check();
    if (bench_.has_work()) bench_.Step();
    bench_.Check();
  }
  void SomeKvArrives() {
    const std::vector<SequenceId> parts = bench_.WaitingParts();
    for (const SequenceId part : parts) {
      if (random_() % 3 == 0) continue;
      const auto tokens = static_cast<uint32_t>(bench_.scheduler().tokens(part).size());
      const uint32_t landed = random_() % 3 == 0 ? random_() % (tokens + 1) : tokens;
      bench_.PartArrives(part, static_cast<int32_t>(landed));
    }
    for (const SequenceId main : bench_.WaitingQuestions()) {
      if (random_() % 3 == 0) continue;
      const auto tokens = static_cast<uint32_t>(bench_.scheduler().tokens(main).size());
      const uint32_t landed = random_() % 3 == 0 ? random_() % (tokens + 1) : tokens;
      bench_.QuestionArrives(main, static_cast<int32_t>(landed));
    }
  }
  void Resize(int32_t blocks) {
    if (blocks < 1 || !pool_.paged) return;
    ASSERT_TRUE(bench_.cache().Resize(blocks).ok());
    bench_.chunks().PoolResized();
    for (const SequenceId id : bench_.scheduler().PoolResized()) bench_.Cancel(id);
  }
  void Finish() {
    bench_.HandOffsFail();
    bench_.Drain();
    EXPECT_TRUE(bench_.parts().empty());
    bench_.chunks().Clear();
    EXPECT_EQ(bench_.cache().available_blocks(), bench_.cache().num_blocks());
  }
  ChunkedBench& bench() { return bench_; }

 private:
  std::mt19937 random_;
  KvCacheOptions pool_;
  ChunkedBench bench_;
  uint64_t next_ = 1;
};

TEST(SchedulerParts, RandomWorkloadsKeepEveryBlockAndMakeProgress) {
  int64_t hits = 0, bypasses = 0, evictions = 0, preemptions = 0, computed = 0;
  constexpr int kSeeds = RandomSeeds(240);
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Workload workload{
        .seed = seed,
        .pool = Pool(20 + seed % 7 * 6, 1 << seed % 4),
        .options = Budget(5 + static_cast<int32_t>(seed) % 5 * 9, 2 + seed % 6),
        .chunks = {.share = 0.25 * (seed % 4), .max_entries = 2 + static_cast<int32_t>(seed) % 9},
        .depth = 1 + static_cast<int32_t>(seed) % 2};
    workload.pool.num_blocks *= 4 / (1 << seed % 4) + 1;
    workload.options.max_chunk_tokens = 3 + seed % 11 * 2;
    if (seed % 10 == 7) {
      workload.pool.paged = false;
      workload.pool.kind = CacheKind::kNaive;
    }
    if (seed % 10 == 8) workload.pool.kind = CacheKind::kNaive;
    RandomChunks run(workload);
    for (int i = 0; i < 300; ++i) {
      run.Event();
      if (testing::Test::HasFatalFailure()) return;
    }
    run.Finish();
    if (testing::Test::HasFailure()) return;
    const ChunkCacheStats stats = run.bench().chunks().Stats();
    hits += run.bench().parts().hits();
    computed += run.bench().parts().computed();
    bypasses += stats.bypasses;
    evictions += stats.evictions;
    preemptions += run.bench().scheduler().preemption_count();
  }
  EXPECT_GT(hits, 2 * kSeeds);
  EXPECT_GT(computed, 2 * kSeeds);
  EXPECT_GT(bypasses, kSeeds / 2);
  EXPECT_GT(evictions, kSeeds / 2);
  EXPECT_GT(preemptions, kSeeds / 12);
}

}  // namespace
}  // namespace baton
