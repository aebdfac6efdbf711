#include "model/step_buffers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/model/tiny_model.h"

namespace baton {
namespace {

using ::testing::ElementsAre;

class StepBuffersTest : public ::testing::Test {
 protected:
  StepBuffersTest() : model_("q4_1", 1), stream_(model_.device->CreateStream()) {
    buffers_ = *StepBuffers::Create(
        model_.config.Decoder(), layout_,
        {.max_tokens = 12, .max_sequences = 4, .max_logit_rows = 6, .max_context = 20},
        *model_.device);
  }
  template <typename T>
  static std::vector<T> Values(const T* data, size_t count) {
    return {data, data + count};
  }

  TinyModel model_;
  std::unique_ptr<Stream> stream_;
  const KvLayout layout_ = *KvLayout::Create({.layers = 2, .kv_heads = 2, .head_dim = 16},
                                             KvLayoutKind::kBlockMajor, 4, 11);
  std::unique_ptr<StepBuffers> buffers_;
};

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
  buffers_->Upload(input, 4, 3, *stream_);
  stream_->Synchronize();
  EXPECT_THAT(Values(buffers_->token_ids, 4), ElementsAre(5, 6, 7, 5));
  EXPECT_THAT(Values(buffers_->slot_mapping, 4), ElementsAre(38, 39, 8, 4));
  EXPECT_THAT(Values(buffers_->sequence_of_token, 4), ElementsAre(0, 0, 0, 1));
  EXPECT_THAT(Values(buffers_->logit_indices, 3), ElementsAre(1, 2, 3));
  EXPECT_THAT(Values(buffers_->first_block, 2), ElementsAre(9, 1));
  EXPECT_EQ(buffers_->table_stride, 5);
  EXPECT_THAT(Values(buffers_->block_tables, 6), ElementsAre(9, 2, 0, 0, 0, 1));
  const int32_t ends[] = {3, 4, 5, 1};
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(buffers_->positions[i * kPositionComponents], i < 3 ? 102 + i : 0);
    const RowRuns& row = buffers_->row_runs[i];
    EXPECT_EQ(row.first_run, i < 3 ? 0 : 1) << "tokens of a chunk share its run";
    EXPECT_EQ(row.run_count, 1);
    EXPECT_EQ(row.last_begin, 0);
    EXPECT_EQ(row.last_end, ends[i]);
    EXPECT_EQ(buffers_->runs[row.first_run].tile_origin, 0);
    EXPECT_EQ(buffers_->runs[row.first_run].query_offset, 0);
  }
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
  buffers_->Upload(input, 7, 6, *stream_);
  stream_->Synchronize();
  // Block 10 is the pool's last: four slots, then no more.
  EXPECT_THAT(Values(buffers_->slot_mapping, 7), ElementsAre(12, 40, 41, 42, 43, -1, -1));
  EXPECT_THAT(Values(buffers_->sequence_of_token, 7), ElementsAre(0, 0, 0, 0, 0, 0, 0));
  EXPECT_THAT(Values(buffers_->logit_indices, 6), ElementsAre(0, 0, 0, 0, 0, 0));
  for (int row = 1; row < 7; ++row) EXPECT_EQ(buffers_->row_runs[row].run_count, 0);
}

}  // namespace
}  // namespace baton
