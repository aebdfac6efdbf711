// Rows that compare: how much K and V of layer 1 would change if a row saw more.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/model/divisible_model.h"
#include "tests/model/tiny_model.h"

namespace baton {
namespace {

constexpr int32_t kChunk = 12;  // tokens of each of the two chunks, behind 10 system tokens

TinyPool PoolOf(KvType type, int32_t block_size = 16) {
  TinyPool pool{.type = type, .block_size = block_size};
  pool.limits.max_extra_runs = 40;
  pool.limits.max_shifted_queries = 80;
  pool.limits.max_compared_rows = 1;
  return pool;
}

const std::vector<SlotRun>& Runs() {
  static const auto* const runs =
      new std::vector<SlotRun>{{0, 10}, {32, 44, 32}, {64, 76, 64, kChunk}};
  return *runs;
}

// A system part and two chunks that see it.
void Store(TinyRunner& runner) {
  const auto system = TinyTokens(10, 1);
  StepInput input;
  input.chunks.push_back(runner.Chunk(0, system, 0, 0));
  ASSERT_TRUE(runner.Run(input).ok());
  for (const int32_t slot : {32, 64}) {
    const auto tokens = TinyTokens(kChunk, slot);
    const std::vector<SlotRun> runs = {{0, 10}, {slot, slot + kChunk, slot}};
    input.chunks = {runner.Chunk(0, tokens, slot, 0)};
    input.chunks[0].begin_position = 10;
    input.chunks[0].runs = runs;
    ASSERT_TRUE(runner.Run(input).ok());
  }
}

// Rows [begin, end) of the two chunks, which compare.
struct Rows {
  Rows(TinyRunner& runner, int32_t begin, int32_t end) {
    for (int32_t row = begin; row < end; ++row) {
      const int32_t slot = row < kChunk ? 32 : 64;
      tokens.push_back(TinyTokens(kChunk, slot)[row % kChunk]);
      places.push_back({slot + row % kChunk, slot / 32});
      RowPosition position;
      position.fill(10 + row % kChunk);
      positions.push_back(position);
    }
    chunk = runner.Chunk(0, tokens, 0, 0);
    chunk.runs = Runs();
    chunk.places = places;
    chunk.positions = positions;
    chunk.compares = true;
  }
  Rows(const Rows&) = delete;
  Rows& operator=(const Rows&) = delete;
  std::vector<TokenId> tokens;
  std::vector<RowPlace> places;
  std::vector<RowPosition> positions;
  StepChunk chunk;
};

std::vector<float> ChangesOf(TinyRunner& runner, const StepInput& input) {
  const absl::StatusOr<StepId> step = runner.runner->Submit(input);
  EXPECT_TRUE(step.ok()) << step.status();
  const absl::StatusOr<StepResult> result = runner.runner->Collect(*step);
  EXPECT_TRUE(result.ok()) << result.status();
  return result->changes;
}

std::vector<float> AllChanges(TinyRunner& runner) {
  const Rows rows(runner, 0, 2 * kChunk);
  return ChangesOf(runner, {.chunks = {rows.chunk}});
}

TEST(LlamaRunnerPlaces, AChunkThatSawEverythingHasNoChange) {
  const TinyModel model("f32");
  for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kInt8}) {
    TinyRunner runner(model, PoolOf(type));
    ASSERT_TRUE(runner.runner->compares_rows());
    Store(runner);
    const std::vector<float> changes = AllChanges(runner);
    ASSERT_EQ(changes.size(), 2u * kChunk);
    const float first = *std::max_element(changes.begin(), changes.begin() + kChunk);
    const float second = *std::min_element(changes.begin() + kChunk, changes.end());
    EXPECT_GT(second, 5 * first) << KvTypeName(type);
    // The first chunk stands behind the system part, so its rows are computed as they were.
    if (type == KvType::kF32) {
      EXPECT_EQ(first, 0);
    }
  }
}

TEST(LlamaRunnerPlaces, ChangesDependNeitherOnTheStepNorOnTheBlocks) {
  const TinyModel model("q4_1");
  const auto others = TinyTokens(30, 5);
  for (const KvType type : {KvType::kF16, KvType::kInt8}) {
    TinyRunner plain(model, PoolOf(type));
    Store(plain);
    const std::vector<float> expected = AllChanges(plain);
    for (const int32_t block_size : {1, 8, 64}) {
      TinyRunner runner(model, PoolOf(type, block_size));
      Store(runner);
      EXPECT_EQ(AllChanges(runner), expected);
      std::vector<float> sliced;
      for (int32_t begin = 0; begin < 2 * kChunk; begin += 5) {
        const Rows rows(runner, begin, std::min(2 * kChunk, begin + 5));
        const Rows more(runner, 3, 7);
        StepInput input{.chunks = {runner.Chunk(3, others, 0, 1), rows.chunk, more.chunk}};
        const std::vector<float> changes = ChangesOf(runner, input);
        ASSERT_EQ(changes.size(), rows.tokens.size() + 4);
        sliced.insert(sliced.end(), changes.begin(), changes.end() - 4);
      }
      EXPECT_EQ(sliced, expected);
    }
  }
}

TEST(LlamaRunnerPlaces, RanksOfEveryDegreeFindTheSameChanges) {
  const std::string bytes = DivisibleModelBytes(GgmlType::kQ8_0);
  const TinyModel model(*ParseGguf(bytes), 2);
  for (const KvType type : {KvType::kF32, KvType::kInt8}) {
    TinyRunner one(model, PoolOf(type));
    Store(one);
    const std::vector<float> expected = AllChanges(one);
    for (const int32_t degree : {2, 3, 12}) {
      const TinyRanks ranks(*model.file, degree);
      TinyRunner all(model, PoolOf(type), ranks.weights.get());
      ASSERT_TRUE(all.runner->compares_rows());
      Store(all);
      EXPECT_EQ(AllChanges(all), expected) << KvTypeName(type) << ", degree " << degree;
    }
  }
}

TEST(LlamaRunnerPlaces, NothingIsStoredAndOtherChunksOfTheStepAreNotDisturbed) {
  const TinyModel model("q4_1");
  const auto others = TinyTokens(30, 5);
  TinyRunner runner(model, PoolOf(KvType::kF16));
  Store(runner);
  StepInput input{.chunks = {runner.Chunk(3, others, 0, 2)}};
  ASSERT_TRUE(runner.Run(input).ok());
  const std::vector<float> expected[] = {runner.Row(0), runner.Row(1)};
  const std::vector<std::byte> before(runner.part(0).begin(), runner.part(0).end());
  const Rows rows(runner, 0, 2 * kChunk);
  input.chunks.push_back(rows.chunk);
  ASSERT_TRUE(runner.Run(input).ok());
  EXPECT_EQ(runner.Row(0), expected[0]);
  EXPECT_EQ(runner.Row(1), expected[1]);
  EXPECT_TRUE(std::equal(before.begin(), before.end(), runner.part(0).begin()));
}

TEST(LlamaRunnerPlaces, RowsThatCompareLeaveTheStepBehindLayerOne) {
  const TinyModel model("q4_1");
  const auto others = TinyTokens(3, 5);
  TinyRunner runner(model, PoolOf(KvType::kF16));
  Store(runner);
  const Rows rows(runner, 0, 2 * kChunk);
  std::vector<int64_t>& ops = runner.device.rows();
  ops.clear();
  ASSERT_TRUE(runner.Run({.chunks = {runner.Chunk(3, others, 0, 0)}}).ok());
  const size_t whole = ops.size();
  ops.clear();
  ChangesOf(runner, {.chunks = {rows.chunk}});
  EXPECT_EQ(std::count(ops.begin(), ops.end(), 0), 0);
  const auto compared = std::count(ops.begin(), ops.end(), 24);
  EXPECT_LT(compared, static_cast<int64_t>(whole)) << "the rest of layer 1 is left out";
  ops.clear();
  ChangesOf(runner, {.chunks = {runner.Chunk(3, others, 0, 0), rows.chunk}});
  EXPECT_EQ(std::count(ops.begin(), ops.end(), 27), compared);
  EXPECT_EQ(std::count(ops.begin(), ops.end(), 3), static_cast<int64_t>(whole) - (compared - 1));
}

TEST(LlamaRunnerPlaces, RefusesWhatItCannotCompare) {
  const TinyModel model("f32");
  const auto others = TinyTokens(30, 5);
  TinyRunner runner(model, PoolOf(KvType::kF16));
  const Rows rows(runner, 0, 4);
  EXPECT_EQ(runner.Run({.chunks = {rows.chunk, runner.Chunk(3, others, 0, 1)}}),
            absl::InvalidArgumentError("a chunk that stores KV is behind one that compares"));
  TinyPool pool = PoolOf(KvType::kF16);
  pool.limits.max_compared_rows = 0;
  TinyRunner cannot(model, pool);
  EXPECT_FALSE(cannot.runner->compares_rows());
  const Rows refused(cannot, 0, 4);
  EXPECT_EQ(cannot.Run({.chunks = {refused.chunk}}),
            absl::UnimplementedError("this runner does not compare rows"));
}

}  // namespace
}  // namespace baton
