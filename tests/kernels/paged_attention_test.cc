#include "kernels/cpu/paged_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/common/random_operations.h"
#include "tests/kernels/attention_case.h"
#include "tests/kernels/fast_kernels.h"

namespace baton {
namespace {

constexpr uint64_t kSeed = 7006;

std::vector<float> Attend(const AttentionCase& problem, int threads,
                          InstructionSet set = InstructionSet::kPlain) {
  std::vector<float> out(problem.out_size(), -1.0f);
  ThreadPool pool(threads);
  AttentionScratch scratch;
  for (int round = 0; round < 2; ++round) {  // the second round reuses the scratch memory
    RunPagedAttention(KernelsFor(set), pool, scratch, problem.Args(out.data()));
  }
  return out;
}

// A batch with all kinds of rows: a chunk, single tokens, windows, several runs, padding, and
// lengths around the borders of tiles and segments.
std::vector<AttentionSequence> MixedBatch() {
  std::vector<AttentionSequence> batch;
  batch.push_back(CausalSequence(40, 37));
  for (const int32_t slots : {1, 63, 64, 65, 255, 256, 257, 700}) {
    batch.push_back(CausalSequence(slots, 1));
  }
  batch.push_back(CausalSequence(300, 9, 20));
  batch.push_back({.slots = 600, .tokens = {{{0, 4}, {500, 590}}, {{0, 4}, {513, 600}}, {}}});
  // Runs in any order with their own tile origins. Some are shifted, one is empty.
  batch.push_back({.slots = 700,
                   .tokens = {{{300, 650, 290, 7}, {0, 300}, {660, 660, 650}, {650, 680, 650}},
                              {{300, 650, 290, 7}, {0, 300}, {660, 660, 650}, {650, 681, 650}},
                              {{300, 650, 290, -3}, {650, 682, 650, 7}},
                              {{650, 683, 600, 7}}}});
  batch.push_back({.slots = 5, .tokens = {{}, {}}});
  return batch;
}

TEST(PagedAttention, EveryBlockSizeLayoutAndThreadCountIsTheLiteralTranscription) {
  const std::vector<AttentionSequence> batch = MixedBatch();
  std::vector<float> expected;
  for (int log2 = 0; log2 <= 7; ++log2) {
    for (const bool layer_major : {false, true}) {
      for (const bool contiguous : {false, true}) {
        SCOPED_TRACE(testing::Message() << "block size 2^" << log2 << " layer major " << layer_major
                                        << " contiguous " << contiguous << " seed " << kSeed);
        const AttentionShape shape{
            .block_size_log2 = log2, .layer_major = layer_major, .contiguous = contiguous};
        const AttentionCase problem(shape, batch, kSeed);
        if (expected.empty()) expected = problem.Expected();
        const int threads = 1 + (log2 + layer_major + 2 * contiguous) % 4;
        ASSERT_EQ(Attend(problem, threads), expected) << threads << " threads";
      }
    }
  }
}

// Attention splits a single sequence by segments, but walks a sequence of a batch. The bits must be
// the same.
TEST(PagedAttention, SplitAndWalkedSequencesAreEqualAtSegmentBorders) {
  for (const int32_t slots : {255, 256, 257, 511, 512, 513, 1500}) {
    SCOPED_TRACE(testing::Message() << slots << " slots, seed " << kSeed);
    const AttentionCase problem({.type = KvType::kBF16}, {CausalSequence(slots, 1)}, kSeed);
    const std::vector<float> expected = problem.Expected();
    for (const int threads : {1, 2, 3, 4}) ASSERT_EQ(Attend(problem, threads), expected) << threads;
  }
}

TEST(PagedAttention, GroupedAndSingleHeadsOfEveryKind) {
  for (const auto& [query_heads, kv_heads] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {4, 4}, {9, 3}, {8, 1}, {80, 1}}) {
    SCOPED_TRACE(testing::Message() << query_heads << " over " << kv_heads << " seed " << kSeed);
    const AttentionShape shape{.query_heads = query_heads, .kv_heads = kv_heads, .head_dim = 8};
    const AttentionCase problem(shape, {CausalSequence(270, 20), CausalSequence(300, 1)}, kSeed);
    const std::vector<float> expected = problem.Expected();
    for (const int threads : {1, 2, 4}) ASSERT_EQ(Attend(problem, threads), expected) << threads;
  }
}

TEST(PagedAttention, PoolsWithScalesOfEveryBlockSizeAreTheLiteralTranscription) {
  for (const KvType type : {KvType::kInt8, KvType::kFp8}) {
    std::vector<float> expected;
    for (int log2 = 0; log2 <= 7; ++log2) {
      SCOPED_TRACE(testing::Message()
                   << KvTypeName(type) << " block size 2^" << log2 << " seed " << kSeed);
      const AttentionShape shape{
          .type = type, .block_size_log2 = log2, .layer_major = log2 % 2 == 0};
      const AttentionCase problem(shape, MixedBatch(), kSeed);
      if (expected.empty()) expected = problem.Expected();
      ASSERT_EQ(Attend(problem, 1 + log2 % 3), expected);
    }
  }
}

// Uses more states than one round of split attention has room for.
TEST(PagedAttention, SplitAttentionInSeveralRounds) {
  const AttentionShape shape{.query_heads = 64, .kv_heads = 1, .head_dim = 2, .type = KvType::kF32};
  std::vector<AttentionSequence> batch = {CausalSequence(256 * 140, 1), CausalSequence(300, 2)};
  const AttentionCase problem(shape, batch, kSeed);
  EXPECT_EQ(Attend(problem, 4), Attend(problem, 1)) << "seed " << kSeed;
}

int32_t Below(std::mt19937_64& random, int32_t end) {
  return static_cast<int32_t>(random() % static_cast<uint64_t>(end));
}

CaseRun RandomRun(std::mt19937_64& random, int32_t slots) {
  CaseRun run;
  run.begin = Below(random, slots);
  run.end = run.begin + Below(random, std::min(slots - run.begin, 330) + 1);
  run.tile_origin = run.begin - Below(random, 300);
  constexpr int32_t kShifts[] = {0, 0, 5, -9, 1000};
  run.position_shift = kShifts[random() % 5];
  return run;
}

// Returns one of: a chunk whose tokens see the same runs, with a growing last run; tokens whose
// runs differ from the previous token's in one thing, or are random; padding.
AttentionSequence RandomSequence(std::mt19937_64& random) {
  AttentionSequence sequence{.slots = 1 + Below(random, 900), .tokens = {}};
  const auto slots = static_cast<int32_t>(sequence.slots);
  const int32_t tokens = 1 + Below(random, 12);
  std::vector<CaseRun> runs(random() % 6);
  for (CaseRun& run : runs) run = RandomRun(random, slots);
  const bool own = random() % 2 == 0;
  for (int32_t t = 0; t < tokens; ++t) {
    sequence.tokens.push_back(runs);
    if (own && random() % 8 == 0) runs.resize(random() % 6, RandomRun(random, slots));
    if (runs.empty()) continue;
    CaseRun& run = own ? runs[random() % runs.size()] : runs.back();
    const uint64_t change = own ? random() % 4 : 0;
    if (change == 0) run.end = std::min(slots, run.end + 1);
    if (change == 1) run.position_shift = RandomRun(random, slots).position_shift;
    if (change == 2) run.tile_origin -= Below(random, 70);
    if (change == 3) run = RandomRun(random, slots);
  }
  return sequence;
}

TEST(PagedAttention, AnyRunsAreTheLiteralTranscriptionOnEveryInstructionSet) {
  std::mt19937_64 random(TestSeed());
  for (int round = 0; round < RandomSeeds(24); ++round) {
    std::vector<AttentionSequence> batch(1 + random() % 5);
    for (AttentionSequence& sequence : batch) sequence = RandomSequence(random);
    constexpr KvType kTypes[] = {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kInt8,
                                 KvType::kFp8};
    const AttentionShape shape{.head_dim = round % 3 == 0 ? 64 : 24,
                               .type = kTypes[round % 4],
                               .block_size_log2 = Below(random, 8),
                               .layer_major = random() % 2 == 0,
                               .contiguous = random() % 4 == 0,
                               .share_runs = random() % 2 == 0};
    const AttentionCase problem(shape, batch, random());
    const std::vector<float> expected = problem.Expected();
    for (const InstructionSet set : kInstructionSets) {
      if (!IsSupported(set)) continue;
      ASSERT_EQ(Attend(problem, 1 + Below(random, 4), set), expected)
          << "round " << round << " " << InstructionSetName(set);
    }
  }
}

TEST(PagedAttention, AnyRunsAreNearSoftmaxInDoublePrecision) {
  std::mt19937_64 random(TestSeed());
  for (int round = 0; round < 6; ++round) {
    const AttentionShape shape{.head_dim = 32, .type = KvType::kF32};
    const AttentionCase problem(shape, {RandomSequence(random), RandomSequence(random)}, random());
    const std::vector<float> out = Attend(problem, 2, BestInstructionSet());
    const std::vector<double> exact = problem.Exact();
    for (size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], exact[i], 5e-6) << round;
  }
}

// Part of a prompt: its number of slots, and the name of its first slot.
struct Part {
  int32_t slots;
  uint64_t name;
  int32_t position_shift;
  int32_t into_tile;  // begin minus tile origin, modulo the segment length
};

// Returns a sequence that stores `parts` in the order `places`, with unrelated slots between. Its
// tokens see all parts in the original order; the last part grows with each token.
AttentionSequence Place(std::mt19937_64& random, const std::vector<Part>& parts,
                        const std::vector<size_t>& places, int32_t tokens) {
  AttentionSequence sequence;
  std::vector<CaseRun> runs(parts.size());
  uint64_t strange = random();
  for (const size_t place : places) {
    const Part& part = parts[place];
    sequence.slot_names.resize(sequence.slot_names.size() + random() % 100, ++strange);
    CaseRun& run = runs[place];
    run.begin = static_cast<int32_t>(sequence.slot_names.size());
    run.end = run.begin + part.slots;
    run.tile_origin = run.begin - part.into_tile - 256 * Below(random, 3);
    run.position_shift = part.position_shift;
    for (int32_t i = 0; i < part.slots; ++i) sequence.slot_names.push_back(part.name + i);
  }
  sequence.slots = static_cast<int64_t>(sequence.slot_names.size());
  for (int32_t t = 0; t < tokens; ++t) {
    sequence.tokens.push_back(runs);
    sequence.tokens.back().back().end -= tokens - 1 - t;
    sequence.token_names.push_back(9000 + t);
  }
  return sequence;
}

TEST(PagedAttention, TheSameRunsHaveTheSameBitsWhereverTheyAreStored) {
  std::mt19937_64 random(TestSeed());
  for (const KvType type :
       {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kInt8, KvType::kFp8}) {
    const std::vector<Part> parts = {
        {70, 1000, 0, 0}, {300, 2000, -40, 0}, {129, 3000, 230, 17}, {40, 4000, 0, 200}};
    const uint64_t seed = random();
    const AttentionShape plain{.type = type};
    const AttentionCase first(plain, {Place(random, parts, {0, 1, 2, 3}, 5)}, seed);
    const std::vector<float> expected = Attend(first, 1);
    ASSERT_EQ(expected, first.Expected());
    for (int round = 0; round < 12; ++round) {
      std::vector<size_t> places = {0, 1, 2, 3};
      std::shuffle(places.begin(), places.end(), random);
      const AttentionShape shape{.type = type,
                                 .block_size_log2 = Below(random, 8),
                                 .layer_major = random() % 2 == 0,
                                 .contiguous = random() % 3 == 0,
                                 .share_runs = random() % 2 == 0};
      // Puts another sequence before it.
      std::vector<AttentionSequence> batch = {CausalSequence(1 + Below(random, 400), 1)};
      batch.push_back(Place(random, parts, places, 5));
      const AttentionCase moved(shape, batch, seed);
      const InstructionSet set = round % 2 == 0 ? InstructionSet::kPlain : BestInstructionSet();
      std::vector<float> out = Attend(moved, 1 + round % 4, set);
      out.erase(out.begin(), out.end() - static_cast<int64_t>(expected.size()));
      ASSERT_EQ(out, expected) << KvTypeName(type) << " round " << round;
    }
  }
}

TEST(PagedAttention, RunsOfWholeSegmentsHaveTheBitsOfOneRun) {
  const auto attend = [](const std::vector<CaseRun>& runs) {
    return Attend(AttentionCase({}, {{.slots = 900, .tokens = {runs}}}, kSeed), 2);
  };
  const std::vector<float> one = attend({{0, 900}});
  EXPECT_EQ(attend({{0, 256}, {256, 768, 256}, {768, 900, 512}}), one);
  EXPECT_NE(attend({{0, 256}, {256, 760, 256}, {760, 900, 760}}), one);
  EXPECT_NE(attend({{0, 256}, {256, 768, 255}, {768, 900, 768}}), one);
  EXPECT_NE(attend({{256, 768, 256}, {0, 256}, {768, 900, 768}}), one);
}

TEST(PagedAttention, NoTokensAndOnlyPaddingAreFine) {
  const AttentionCase none({}, {}, kSeed);
  EXPECT_TRUE(Attend(none, 2).empty());
  const AttentionCase padding({}, {{.slots = 3, .tokens = {{}, {}, {}}}}, kSeed);
  EXPECT_EQ(Attend(padding, 2), std::vector<float>(padding.out_size(), 0.0f));
}

}  // namespace
}  // namespace baton
