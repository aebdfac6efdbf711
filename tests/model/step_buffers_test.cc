#include "model/step_buffers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <optional>

#include "model/shared_prefixes.h"
#include "tests/model/step_buffers_fixture.h"

namespace baton {
namespace {

using ::testing::ElementsAre;

TEST_F(StepBuffersTest, ATokenGoesToItsSlotAndSeesItsSequenceUpToItself) {
  const std::vector<TokenId> tokens = {5, 6, 7};
  const std::vector<BlockId> table = {BlockId(9), BlockId(2)};
  const std::vector<BlockId> other = {BlockId(1)};
  StepInput input;
  input.chunks.push_back({.tokens = tokens,
                          .begin_slot = 2,
                          .begin_position = 102,
                          .block_table = table,
                          .logit_rows = 2});
  input.chunks.push_back({.tokens = std::span(tokens).first(1),
                          .begin_slot = 0,
                          .begin_position = 0,
                          .block_table = other,
                          .logit_rows = 1});
  Upload(input, 4, 3);
  stream_->Synchronize();
  EXPECT_THAT(Values(buffers_->token_ids, 4), ElementsAre(5, 6, 7, 5));
  EXPECT_THAT(Values(buffers_->groups[0].slot_mapping, 4), ElementsAre(38, 39, 8, 4));
  EXPECT_THAT(Values(buffers_->sequence_of_token, 4), ElementsAre(0, 0, 0, 1));
  EXPECT_THAT(Values(buffers_->logit_indices, 3), ElementsAre(1, 2, 3));
  EXPECT_THAT(Values(buffers_->groups[0].first_block, 2), ElementsAre(9, 1));
  EXPECT_EQ(buffers_->table_stride, 5);
  EXPECT_THAT(Values(buffers_->groups[0].block_tables, 6), ElementsAre(9, 2, 0, 0, 0, 1));
  const int32_t ends[] = {3, 4, 5, 1};
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(buffers_->positions[i * kPositionComponents], i < 3 ? 102 + i : 0);
    const RowRuns& row = buffers_->groups[0].row_runs[i];
    EXPECT_EQ(row.first_run, i < 3 ? 0 : 1) << "tokens of a chunk share its run";
    EXPECT_EQ(row.run_count, 1);
    EXPECT_EQ(row.last_begin, 0);
    EXPECT_EQ(row.last_end, ends[i]);
    EXPECT_EQ(buffers_->runs[row.first_run].tile_origin, 0);
    EXPECT_EQ(buffers_->runs[row.first_run].query_offset, 0);
  }
}

TEST_F(StepBuffersTest, TokensShareRunsAndHaveQueriesOfTheirOwnForEachShift) {
  const std::vector<TokenId> tokens = {5, 6, 7};
  const std::vector<BlockId> table = {BlockId(9), BlockId(2), BlockId(4)};
  const std::vector<SlotRun> runs = {{8, 10, 7, 30}, {0, 3, 0, 2}, {3, 5}, {5, 8, 5, 30}};
  const std::vector<SlotRun> other_runs = {{0, 2, 0, -1}, {2, 3, 2}};
  StepInput input;
  input.chunks.push_back({.tokens = std::span(tokens).first(1),
                          .begin_slot = 2,
                          .begin_position = 40,
                          .block_table = table,
                          .runs = other_runs});
  input.chunks.push_back({.tokens = tokens,
                          .begin_slot = 5,
                          .begin_position = 105,
                          .block_table = table,
                          .runs = runs});
  ASSERT_TRUE(buffers_->Check(input).ok()) << buffers_->Check(input);
  Upload(input, 5, 0);
  stream_->Synchronize();
  const auto run = [&](int i) {
    const VisibleRun& r = buffers_->runs[i];
    return std::vector<int32_t>{r.begin, r.end, r.tile_origin, r.query_offset};
  };
  // Query row 12 is token row 0 with shift −1; rows 13 to 15 are rows 1 to 3 with shift 2; rows 16
  // to 18 have shift 30.
  EXPECT_THAT(run(0), ElementsAre(0, 2, 0, 12));
  EXPECT_THAT(run(1), ElementsAre(2, 3, 2, 0));
  EXPECT_THAT(run(2), ElementsAre(8, 10, 7, 15));
  EXPECT_THAT(run(3), ElementsAre(0, 3, 0, 12));
  EXPECT_THAT(run(4), ElementsAre(3, 5, 0, 0));
  EXPECT_THAT(run(5), ElementsAre(5, 8, 5, 15));
  const auto row = [&](int i) {
    const RowRuns& r = buffers_->groups[0].row_runs[i];
    return std::vector<int32_t>{r.first_run, r.run_count, r.last_begin, r.last_end};
  };
  EXPECT_THAT(row(0), ElementsAre(0, 2, 2, 3));
  EXPECT_THAT(row(1), ElementsAre(2, 4, 5, 6));
  EXPECT_THAT(row(2), ElementsAre(2, 4, 5, 7));
  EXPECT_THAT(row(3), ElementsAre(2, 4, 5, 8));
  EXPECT_EQ(buffers_->groups[0].row_runs[4].run_count, 0);
  EXPECT_EQ(buffers_->first_shifted_query, 12);
  EXPECT_THAT(Values(buffers_->shifted_rows, 7), ElementsAre(0, 1, 2, 3, 1, 2, 3));
  const auto position = [&](int row, int component) {
    return buffers_->positions[row * kPositionComponents + component];
  };
  for (int component = 0; component < kPositionComponents; ++component) {
    EXPECT_EQ(position(12, component), 41);
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(position(13 + i, component), 103 + i);
      EXPECT_EQ(position(16 + i, component), 75 + i);
    }
  }
}

TEST_F(StepBuffersTest, EmbeddingsAndPositionsGoBesideTheRowsTheyBelongTo) {
  const std::vector<TokenId> tokens = {5, 6};
  const std::vector<BlockId> table = {BlockId(9)};
  const std::vector<RowPosition> positions = {{1, 2, 3}, {4, 5, 6}};
  std::vector<float> embeddings(2 * model_.config.hidden);
  for (size_t i = 0; i < embeddings.size(); ++i) embeddings[i] = static_cast<float>(i);
  StepInput input;
  input.chunks.push_back({.tokens = tokens, .begin_position = 70, .block_table = table});
  input.chunks.push_back(
      {.tokens = tokens, .block_table = table, .embeddings = embeddings, .positions = positions});
  ASSERT_TRUE(buffers_->Check(input).ok()) << buffers_->Check(input);
  Upload(input, 4, 0);
  stream_->Synchronize();
  EXPECT_THAT(Values(buffers_->embedding_rows, 4), ElementsAre(-1, -1, 0, 1));
  EXPECT_EQ(Values(buffers_->embeddings, embeddings.size()), embeddings);
  EXPECT_THAT(Values(buffers_->positions, 12),
              ElementsAre(70, 70, 70, 71, 71, 71, 1, 2, 3, 4, 5, 6));
}

TEST_F(StepBuffersTest, RowsWithPlacesHaveTheirOwnSlotsRunsAndShiftedQueries) {
  const std::vector<TokenId> tokens = {5, 6, 7, 8};
  const std::vector<BlockId> table = {BlockId(9), BlockId(2), BlockId(7)};
  const std::vector<SlotRun> runs = {{0, 3}, {4, 7, 4}, {8, 11, 8, 5}};
  const std::vector<RowPlace> places = {{4, 1}, {6, 1}, {8, 2}, {10, 2}};
  const std::vector<RowPosition> positions = {{3, 3, 3}, {5, 5, 5}, {3, 3, 3}, {5, 5, 5}};
  StepInput input;
  input.chunks.push_back({.tokens = tokens,
                          .block_table = table,
                          .positions = positions,
                          .runs = runs,
                          .places = places});
  ASSERT_TRUE(buffers_->Check(input).ok()) << buffers_->Check(input);
  Upload(input, 4, 0);
  stream_->Synchronize();
  const StepBuffers::Group& group = buffers_->groups[0];
  EXPECT_THAT(Values(group.slot_mapping, 4), ElementsAre(8, 10, 28, 30));
  const int32_t counts[] = {2, 2, 3, 3};
  const int32_t begins[] = {4, 4, 8, 8};
  const int32_t ends[] = {5, 7, 9, 11};
  const int32_t first_runs[] = {0, 0, 2, 2};
  for (int row = 0; row < 4; ++row) {
    EXPECT_EQ(group.row_runs[row].first_run, first_runs[row]);
    EXPECT_EQ(group.row_runs[row].run_count, counts[row]);
    EXPECT_EQ(group.row_runs[row].last_begin, begins[row]);
    EXPECT_EQ(group.row_runs[row].last_end, ends[row]);
  }
  // The second group of rows sees the first two runs with queries for 5 positions further on.
  const auto first = static_cast<int32_t>(buffers_->first_shifted_query);
  for (const int run : {0, 1, 4}) EXPECT_EQ(buffers_->runs[run].query_offset, 0);
  for (const int run : {2, 3}) EXPECT_EQ(buffers_->runs[run].query_offset, first - 2);
  EXPECT_THAT(Values(buffers_->shifted_rows, 2), ElementsAre(2, 3));
  EXPECT_EQ(buffers_->positions[first * kPositionComponents], 8);
  EXPECT_EQ(buffers_->positions[(first + 1) * kPositionComponents], 10);

  const auto refused = [&](std::vector<RowPlace> bad, size_t given_positions = 4) {
    input.chunks[0].places = bad;
    input.chunks[0].positions = std::span(positions).first(given_positions);
    const absl::Status status = buffers_->Check(input);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  };
  EXPECT_EQ(refused(places, 3), "3 positions for 4 tokens");
  EXPECT_EQ(refused(places, 0), "4 places and 0 positions for 4 tokens");
  EXPECT_EQ(refused({{4, 1}, {6, 1}, {8, 2}}), "3 places and 4 positions for 4 tokens");
  EXPECT_EQ(refused({{4, 1}, {4, 1}, {8, 2}, {9, 2}}),
            "a row has slot 4 of run 1 of 3; it must be in that run and behind slot 4");
  EXPECT_EQ(refused({{4, 1}, {7, 1}, {8, 2}, {9, 2}}),
            "a row has slot 7 of run 1 of 3; it must be in that run and behind slot 4");
  EXPECT_EQ(refused({{4, 1}, {6, 1}, {8, 2}, {9, 3}}),
            "a row has slot 9 of run 3 of 3; it must be in that run and behind slot 8");
}

TEST_F(StepBuffersTest, PaddingGoesToTheScratchBlockOrNowhereAndSeesNothing) {
  const std::vector<TokenId> tokens = {5};
  const std::vector<BlockId> table = {BlockId(3)};
  StepInput input;
  input.chunks.push_back({.tokens = tokens,
                          .begin_slot = 0,
                          .begin_position = 0,
                          .block_table = table,
                          .logit_rows = 1});
  Upload(input, 7, 6);
  stream_->Synchronize();
  // Block 10 is the last of the pool. It has four slots.
  EXPECT_THAT(Values(buffers_->groups[0].slot_mapping, 7), ElementsAre(12, 40, 41, 42, 43, -1, -1));
  EXPECT_THAT(Values(buffers_->sequence_of_token, 7), ElementsAre(0, 0, 0, 0, 0, 0, 0));
  EXPECT_THAT(Values(buffers_->logit_indices, 6), ElementsAre(0, 0, 0, 0, 0, 0));
  for (int row = 1; row < 7; ++row) EXPECT_EQ(buffers_->groups[0].row_runs[row].run_count, 0);
}

// A group with full attention and a group with a window of four tokens.
class WindowStepBuffersTest : public StepBuffersTest {
 protected:
  WindowStepBuffersTest() {
    const KvCacheSpec spec{
        .groups = {{.layers = 1, .kv_heads = 2, .head_dim = 16, .model_layers = {1}},
                   {.kind = KvGroupKind::kSlidingWindow,
                    .layers = 1,
                    .kv_heads = 2,
                    .head_dim = 16,
                    .window = 4,
                    .model_layers = {0}}}};
    const int64_t num_blocks[] = {11, 6};
    buffers_ = *StepBuffers::Create(
        model_.config.Decoder(),
        *KvPoolLayout::Create(spec, KvLayoutKind::kBlockMajor, 4, num_blocks),
        {.max_tokens = 12, .max_sequences = 4, .max_logit_rows = 6, .max_context = 20},
        *model_.device);
  }
};

TEST_F(WindowStepBuffersTest, ARowSeesItsWindowAndDeadEntriesBecomeTheScratchBlock) {
  const std::vector<TokenId> tokens = {5, 6, 7};
  const std::vector<BlockId> table = {BlockId(9), BlockId(2), BlockId(7)};
  const std::vector<BlockId> window = {kNoBlock, BlockId(3), BlockId(1)};
  const std::vector<BlockId> other = {BlockId(4)};
  StepInput input;
  input.chunks.push_back(
      {.tokens = tokens, .begin_slot = 7, .begin_position = 7, .block_table = table});
  input.chunks[0].window_tables[0] = window;
  input.chunks.push_back({.tokens = std::span(tokens).first(2), .block_table = other});
  input.chunks[1].window_tables[0] = other;
  Upload(input, 7, 0);
  stream_->Synchronize();
  const StepBuffers::Group& full = buffers_->groups[0];
  const StepBuffers::Group& slides = buffers_->groups[1];
  EXPECT_THAT(Values(full.slot_mapping, 7), ElementsAre(11, 28, 29, 16, 17, 40, 41));
  EXPECT_THAT(Values(slides.slot_mapping, 7), ElementsAre(15, 4, 5, 16, 17, 20, 21));
  EXPECT_THAT(Values(slides.block_tables, 6), ElementsAre(5, 3, 1, 0, 0, 4));
  EXPECT_THAT(Values(slides.first_block, 2), ElementsAre(5, 4));
  const int32_t begins[] = {4, 5, 6, 0, 0};
  const int32_t ends[] = {8, 9, 10, 1, 2};
  for (int row = 0; row < 5; ++row) {
    EXPECT_EQ(full.row_runs[row].last_begin, 0);
    EXPECT_EQ(full.row_runs[row].last_end, ends[row]);
    EXPECT_EQ(slides.row_runs[row].last_begin, begins[row]);
    EXPECT_EQ(slides.row_runs[row].last_end, ends[row]);
    EXPECT_EQ(slides.row_runs[row].first_run, full.row_runs[row].first_run);
  }
  EXPECT_EQ(slides.row_runs[5].run_count, 0);
  EXPECT_EQ(buffers_->uploaded_entries(), 2 * 6) << "both rows of each group in one copy";
  EXPECT_EQ(buffers_->table_uploads(), 2);
}

// Two KV groups with blocks of 64 slots. The window of the second one is longer than a prefix that
// can be shared.
class SharedStepBuffersTest : public StepBuffersTest {
 protected:
  static constexpr int32_t kBlock = 64;
  static constexpr int32_t kWindow = kSharedSlots + 2 * kBlock;
  SharedStepBuffersTest() {
    const KvCacheSpec spec{
        .groups = {{.layers = 1, .kv_heads = 2, .head_dim = 16, .model_layers = {1}},
                   {.kind = KvGroupKind::kSlidingWindow,
                    .layers = 1,
                    .kv_heads = 2,
                    .head_dim = 16,
                    .window = kWindow,
                    .model_layers = {0}}}};
    const int64_t num_blocks[] = {120, 120};
    layout_of_two_ = *KvPoolLayout::Create(spec, KvLayoutKind::kBlockMajor, kBlock, num_blocks);
    Create(true);
  }
  void Create(bool shares) {
    buffers_ = *StepBuffers::Create(model_.config.Decoder(), *layout_of_two_,
                                    {.max_tokens = 12,
                                     .max_sequences = 4,
                                     .max_logit_rows = 6,
                                     .max_context = kSharedSlots + 8 * kBlock,
                                     .shares_prefixes = shares},
                                    *model_.device);
  }
  // A chunk behind `slots` slots. The first blocks of all chunks are the same.
  void Add(int32_t slots, int32_t rows) {
    std::vector<BlockId>& table = tables_.emplace_back();
    for (int32_t i = 0; i * kBlock < slots + rows; ++i) {
      const bool is_shared = i < kSharedSlots / kBlock;
      table.push_back(BlockId(is_shared ? i
                                        : 40 + 8 * static_cast<int32_t>(tables_.size()) + i -
                                              kSharedSlots / kBlock));
    }
    input_.chunks.push_back({.tokens = std::span(tokens_).first(rows),
                             .begin_slot = slots,
                             .begin_position = slots,
                             .block_table = table});
    input_.chunks.back().window_tables[0] = table;
  }
  std::vector<int32_t> Uploaded(int group) {
    Upload(input_, 8, 0);
    stream_->Synchronize();
    const auto on_device = Values(buffers_->groups[group].shared_segments, 8);
    const auto on_host = buffers_->shared_segments(group);
    EXPECT_THAT(on_host, ::testing::ElementsAreArray(on_device));
    return on_device;
  }

  std::optional<KvPoolLayout> layout_of_two_;
  const std::vector<TokenId> tokens_ = {5, 6, 7};
  std::deque<std::vector<BlockId>> tables_;  // that chunks refer to
  StepInput input_;
};

TEST_F(SharedStepBuffersTest, RowsBehindACommonPrefixShareIt) {
  Add(kSharedSlots + 10, 1);
  Add(kSharedSlots, 3);
  Add(kSharedSlots - 1, 1);  // its own slot is in the last common block
  EXPECT_THAT(Uploaded(0), ElementsAre(0, 8, 8, 8, 0, 0, 0, 0));
}

TEST_F(SharedStepBuffersTest, ARowWhoseWindowHidesTheFirstSlotDoesNotShare) {
  Add(kWindow - 1, 1);
  Add(kWindow - 1, 1);
  Add(kWindow, 1);
  EXPECT_THAT(Uploaded(0), ElementsAre(0, 8, 8, 0, 0, 0, 0, 0));
  EXPECT_THAT(Uploaded(1), ElementsAre(0, 8, 0, 0, 0, 0, 0, 0));
}

TEST_F(SharedStepBuffersTest, NothingIsFoundUnlessTheDeviceUsesIt) {
  Create(false);
  Add(kSharedSlots, 1);
  Add(kSharedSlots, 1);
  Upload(input_, 8, 0);
  EXPECT_EQ(buffers_->groups[0].shared_segments, nullptr);
  EXPECT_TRUE(buffers_->shared_segments(0).empty());
}

}  // namespace
}  // namespace baton
