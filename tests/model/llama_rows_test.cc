// Tests optional inputs of the rows of a Llama step: runs, positions, embeddings.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/model/tiny_model.h"

namespace baton {
namespace {

using Rows = std::vector<std::vector<float>>;

TinyPool PoolOf(KvType type, int32_t block_size = 16) {
  TinyPool pool{.type = type, .block_size = block_size};
  pool.limits.max_extra_runs = 20;
  pool.limits.max_shifted_queries = 60;
  pool.limits.max_embeddings = 40;
  return pool;
}

// Runs a step and returns the logits of all its rows.
Rows RunStep(TinyRunner& runner, const StepInput& input) {
  const absl::Status status = runner.Run(input);
  EXPECT_TRUE(status.ok()) << status;
  Rows rows;
  int32_t row = 0;
  for (const StepChunk& chunk : input.chunks) {
    for (int32_t i = 0; i < chunk.logit_rows; ++i) rows.push_back(runner.Row(row++));
  }
  return rows;
}

double Distance(const Rows& a, const Rows& b) {
  EXPECT_EQ(a.size(), b.size());
  double distance = 0;
  for (size_t r = 0; r < a.size(); ++r) {
    for (size_t i = 0; i < a[r].size(); ++i) {
      distance = std::max(distance, std::abs(double{a[r][i]} - b[r][i]));
    }
  }
  return distance;
}

// Part of a prompt: its tokens, its first slot, its first position when it is computed, and the
// shift that later parts add to its positions.
struct Part {
  std::vector<TokenId> tokens;
  int32_t slot;
  int32_t position;
  int32_t shift = 0;

  SlotRun run() const { return {slot, slot + static_cast<int32_t>(tokens.size()), slot, shift}; }
};

// Computes `part` in slices. It sees the runs `before` and its own slots up to each token.
void Compute(TinyRunner& runner, int32_t sequence, const Part& part, std::vector<SlotRun> before,
             int32_t logit_rows, int32_t slice, Rows* rows) {
  const auto total = static_cast<int32_t>(part.tokens.size());
  for (int32_t begin = 0; begin < total; begin += slice) {
    const int32_t end = std::min(total, begin + slice);
    std::vector<SlotRun> runs = before;
    runs.push_back({part.slot, part.slot + end, part.slot, 0});
    StepInput input;
    input.chunks.push_back(
        runner.Chunk(sequence, std::span(part.tokens).subspan(begin, end - begin),
                     part.slot + begin, std::max(0, logit_rows - (total - end))));
    input.chunks.back().logit_rows = std::min(input.chunks.back().logit_rows, end - begin);
    input.chunks.back().begin_position = part.position + begin;
    input.chunks.back().runs = runs;
    const Rows said = RunStep(runner, input);
    rows->insert(rows->end(), said.begin(), said.end());
  }
}

// Computes two prompt chunks behind a system part, then a question. Each chunk sees the system part
// and itself; the question sees everything. Returns the logits of the question's last `count`
// tokens.
Rows Ask(TinyRunner& runner, int32_t sequence, const Part& system, const Part& first,
         const Part& second, const Part& question, int32_t slice, int32_t count = 6) {
  Rows rows;
  Compute(runner, sequence, system, {}, 0, slice, &rows);
  Compute(runner, sequence, second, {system.run()}, 0, slice, &rows);
  Compute(runner, sequence, first, {system.run()}, 0, slice, &rows);
  Compute(runner, sequence, question, {system.run(), first.run(), second.run()}, count, slice,
          &rows);
  return rows;
}

TEST(LlamaRows, APromptChunkHasTheSameBitsAtAnySlotBesideAnyNeighbours) {
  const TinyModel model("q4_1");
  Part system{TinyTokens(20, 1), 0, 0};
  const Part first{TinyTokens(25, 2), 20, 20};
  Part second{TinyTokens(30, 3), 45, 20};
  Part question{TinyTokens(8, 4), 75, 50};
  const auto strange_tokens = TinyTokens(110, 9);
  for (const int32_t shift : {0, 25}) {  // the second chunk's positions equal or follow the first's
    second.shift = shift;
    question.position = 50 + shift;
    for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kInt8, KvType::kFp8}) {
      TinyRunner in_place(model, PoolOf(type));
      const Rows expected = Ask(in_place, 0, system, first, second, question, 128);
      ASSERT_EQ(expected.size(), 6u);
      for (const int32_t block_size : {1, 16, 128}) {
        for (const int32_t slice : {1, 7, 128}) {
          TinyRunner runner(model, PoolOf(type, block_size));
          Part moved_first = first;
          Part moved_second = second;
          Part moved_question = question;
          moved_second.slot = 33;
          moved_first.slot = 70;
          moved_question.slot = 101;
          // Slots between the parts contain old values or those of other sequences.
          StepInput strange;
          strange.chunks.push_back(runner.Chunk(2, strange_tokens, 0, 0));
          RunStep(runner, strange);
          EXPECT_EQ(Ask(runner, 2, system, moved_first, moved_second, moved_question, slice),
                    expected)
              << KvTypeName(type) << " block size " << block_size << " slice " << slice << " shift "
              << shift;
        }
      }
    }
  }
}

// Compares with keys computed at their shifted positions. A chunk that sees only itself gives the
// same logits at any position.
TEST(LlamaRows, ShiftedRunsComeCloseToKeysComputedAtTheirPositions) {
  const TinyModel model("f32");
  const auto ask = [&](const Part& first, const Part& second) {
    const Part system{TinyTokens(20, 1), 0, 0};
    const Part question{TinyTokens(8, 4), 75, 75};
    TinyRunner runner(model, PoolOf(KvType::kF32));
    Rows rows;
    Compute(runner, 0, system, {}, 0, 128, &rows);
    Compute(runner, 0, first, {}, 0, 128, &rows);
    Compute(runner, 0, second, {}, 0, 128, &rows);
    Compute(runner, 0, question, {system.run(), first.run(), second.run()}, 6, 128, &rows);
    return rows;
  };
  const auto first = TinyTokens(25, 2);
  const auto second = TinyTokens(30, 3);
  const Rows in_place = ask({first, 20, 20}, {second, 45, 45});
  const Rows shifted = ask({first, 20, 0, 20}, {second, 45, 0, 45});
  EXPECT_NE(in_place, shifted);
  EXPECT_LT(Distance(in_place, shifted), 2e-4);
  EXPECT_GT(Distance(in_place, ask({first, 20, 0, 45}, {second, 45, 0, 20})), 2e-2);
  EXPECT_GT(Distance(in_place, ask({first, 20, 0}, {second, 45, 0})), 2e-2);
}

TEST(LlamaRows, OneRunFromSlotZeroIsTheOrdinaryChunkAndPartsOfOneSegmentAreNot) {
  const TinyModel model("q8_0");
  const auto tokens = TinyTokens(40, 5);
  TinyRunner runner(model, PoolOf(KvType::kF16));
  StepInput input;
  input.chunks.push_back(runner.Chunk(0, tokens, 0, 3));
  const Rows ordinary = RunStep(runner, input);
  const std::vector<SlotRun> one = {{0, 40}};
  input.chunks[0].runs = one;
  EXPECT_EQ(RunStep(runner, input), ordinary);
  input.chunks[0].runs = {};
  input.chunks[0].tokens = std::span(tokens).first(30);
  RunStep(runner, input);
  input.chunks[0] = runner.Chunk(0, std::span(tokens).subspan(30), 30, 3);
  const std::vector<SlotRun> two = {{0, 30}, {30, 40, 30}};
  input.chunks[0].runs = two;
  const Rows parts = RunStep(runner, input);
  EXPECT_NE(parts, ordinary);
  EXPECT_LT(Distance(parts, ordinary), 0.5) << "more than rounding";
}

// A captured graph reads runs from device buffers, so it can be replayed. Shifted queries need
// extra rows, so they cannot use a graph.
TEST(LlamaRows, DecodeStepsWithRunsReplayGraphsUnlessQueriesShift) {
  const TinyModel model("q4_0");
  const Part system{TinyTokens(20, 1), 0, 0};
  const Part first{TinyTokens(25, 2), 20, 20};
  Part second{TinyTokens(30, 3), 45, 20};
  for (const int32_t shift : {0, 25}) {
    second.shift = shift;
    const Part question{TinyTokens(8, 4), 75, 50 + shift};
    TinyRunner prefilled(model, PoolOf(KvType::kF16));
    TinyRunner decoded(model, PoolOf(KvType::kF16));
    const Rows expected = Ask(prefilled, 0, system, first, second, question, 128);
    EXPECT_EQ(Ask(decoded, 0, system, first, second, question, 1), expected);
    // A step of one token without logits does not count as a decode step.
    EXPECT_EQ(decoded.runner->counters().graph_replays, shift == 0 ? 6 : 0);
  }
}

TEST(LlamaRows, AStepDropsTheShiftedQueriesOfUnwantedChunks) {
  const TinyModel model("q4_0");
  const auto tokens = TinyTokens(40, 6);
  const std::vector<SlotRun> runs = {{0, 30, 0, 9}, {30, 40, 30, -4}};
  TinyRunner runner(model, PoolOf(KvType::kF16));
  StepInput input;
  for (const int32_t sequence : {0, 1}) {
    input.chunks.push_back(runner.Chunk(sequence, std::span(tokens).first(30), 0, 0));
  }
  RunStep(runner, input);
  for (const int32_t sequence : {0, 1}) {
    input.chunks[sequence] = runner.Chunk(sequence, std::span(tokens).subspan(30), 30, 1);
    input.chunks[sequence].runs = runs;
  }
  std::vector<int64_t>& ops = runner.device.rows();
  ops.clear();
  const Rows expected = RunStep(runner, input);
  EXPECT_EQ(expected[0], expected[1]);
  const size_t whole = ops.size();
  EXPECT_EQ(std::count(ops.begin(), ops.end(), 40), 1 + 2 * model.config.layers);
  for (size_t most = 0; most <= whole; ++most) {
    ops.clear();
    input.wanted = [&] { return ops.size() < most ? 2 : 1; };
    ASSERT_TRUE(runner.Run(input).ok());
    EXPECT_EQ(runner.Row(0), expected[0]) << most;
    EXPECT_EQ(ops.size(), whole);
  }
}

// Computes rows of two stored chunks again: `at` are offsets in both chunks. All at once with
// places, or one after the other as chunks of one token.
Rows Repair(TinyRunner& runner, const Part& system, const Part& first, const Part& second,
            const Part& question, const std::vector<int32_t>& at, bool with_places) {
  Rows rows;
  Compute(runner, 0, system, {}, 0, 128, &rows);
  Compute(runner, 0, second, {system.run()}, 0, 128, &rows);
  Compute(runner, 0, first, {system.run()}, 0, 128, &rows);
  const std::vector<SlotRun> runs = {system.run(), first.run(), second.run()};
  std::vector<TokenId> tokens;
  std::vector<RowPlace> places;
  std::vector<RowPosition> positions;
  for (int32_t run = 1; run <= 2; ++run) {
    const Part& part = run == 1 ? first : second;
    for (const int32_t offset : at) {
      tokens.push_back(part.tokens[offset]);
      places.push_back({part.slot + offset, run});
      RowPosition position;
      position.fill(part.position + offset);
      positions.push_back(position);
    }
  }
  StepInput input;
  if (with_places) {
    input.chunks.push_back(runner.Chunk(0, tokens, 0, 0));
    input.chunks[0].runs = runs;
    input.chunks[0].places = places;
    input.chunks[0].positions = positions;
    RunStep(runner, input);
  }
  for (size_t i = 0; !with_places && i < tokens.size(); ++i) {
    const int32_t own_shift = runs[places[i].run].position_shift;
    std::vector<SlotRun> seen(runs.begin(), runs.begin() + places[i].run + 1);
    for (SlotRun& run : seen) run.position_shift -= own_shift;
    seen.back().end = places[i].slot + 1;
    input.chunks = {runner.Chunk(0, std::span(tokens).subspan(i, 1), places[i].slot, 0)};
    input.chunks[0].begin_position = positions[i][0];
    input.chunks[0].runs = seen;
    RunStep(runner, input);
  }
  rows.clear();
  Compute(runner, 0, question, runs, 6, 128, &rows);
  return rows;
}

TEST(LlamaRows, RowsWithPlacesHaveTheBitsOfSingleTokens) {
  const TinyModel model("q4_1");
  const Part system{TinyTokens(20, 1), 0, 0};
  const Part first{TinyTokens(25, 2), 20, 20, 3};
  for (const int32_t shift : {3, 28, 0}) {
    const Part second{TinyTokens(30, 3), 45, 20, shift};
    const Part question{TinyTokens(8, 4), 75, 78};
    for (const KvType type : {KvType::kF32, KvType::kInt8}) {
      for (const std::vector<int32_t>& at :
           {std::vector<int32_t>{0, 1, 2, 3}, std::vector<int32_t>{2, 9, 24}}) {
        Rows results[2];
        for (const bool with_places : {false, true}) {
          TinyRunner runner(model, PoolOf(type));
          results[with_places] = Repair(runner, system, first, second, question, at, with_places);
        }
        EXPECT_EQ(results[0], results[1]) << KvTypeName(type) << " shift " << shift;
        TinyRunner runner(model, PoolOf(type));
        EXPECT_NE(Repair(runner, system, first, second, question, {}, false), results[0]);
      }
    }
  }
}

TEST(LlamaRows, EmbeddingsTakeThePlaceOfIds) {
  const TinyModel model("f32");
  const auto tokens = TinyTokens(30, 7);
  TinyRunner runner(model, PoolOf(KvType::kF16));
  StepInput input;
  input.chunks.push_back(runner.Chunk(0, tokens, 0, 2));
  input.chunks.push_back(runner.Chunk(1, std::span(tokens).first(11), 0, 2));
  input.chunks.push_back(runner.Chunk(2, std::span(tokens).subspan(5, 9), 0, 2));
  const Rows expected = RunStep(runner, input);

  const GgufTensor* table = model.file->FindTensor("token_embd.weight");
  const auto embed = [&](std::span<const TokenId> ids) {
    std::vector<float> rows(ids.size() * model.config.hidden);
    for (size_t i = 0; i < ids.size(); ++i) {
      const size_t bytes = model.config.hidden * sizeof(float);
      std::memcpy(rows.data() + i * model.config.hidden, table->data.data() + ids[i] * bytes,
                  bytes);
    }
    return rows;
  };
  const std::vector<float> first = embed(input.chunks[0].tokens);
  const std::vector<float> third = embed(input.chunks[2].tokens);
  const std::vector<TokenId> no_ids(30, -5);
  input.chunks[0].tokens = no_ids;
  input.chunks[0].embeddings = first;
  input.chunks[2].tokens = std::span(no_ids).first(9);
  input.chunks[2].embeddings = third;
  EXPECT_EQ(RunStep(runner, input), expected);

  // One token with one row of logits, as in a decode step.
  StepInput last;
  last.chunks.push_back(runner.Chunk(0, std::span(no_ids).first(1), 29, 1));
  last.chunks[0].embeddings = std::span(first).last(model.config.hidden);
  EXPECT_EQ(RunStep(runner, last)[0], expected[1]);
}

TEST(LlamaRows, PositionsMayBeGivenForEachToken) {
  const TinyModel model("f16");
  const auto tokens = TinyTokens(20, 8);
  TinyRunner runner(model, PoolOf(KvType::kF16));
  StepInput input;
  input.chunks.push_back(runner.Chunk(0, tokens, 0, 4));
  input.chunks[0].begin_position = 50;
  const Rows expected = RunStep(runner, input);
  std::vector<RowPosition> positions;
  for (int32_t i = 0; i < 20; ++i) positions.push_back({50 + i, -3, 7 * i});  // text turns by time
  input.chunks[0].begin_position = 0;
  input.chunks[0].positions = positions;
  EXPECT_EQ(RunStep(runner, input), expected);
  positions[4][0] = 90;
  EXPECT_NE(RunStep(runner, input), expected);
}

TEST(LlamaRows, RefusesWhatItCannotCompute) {
  const TinyModel model("f32");
  TinyRunner runner(model, PoolOf(KvType::kF16));
  const auto tokens = TinyTokens(20, 8);
  StepInput input;
  input.chunks.push_back(runner.Chunk(0, tokens, 0, 1));
  input.chunks[0].adapter = 3;
  const absl::Status status = runner.Run(input);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(status.message(), "segment 0, adapter 3: only 0 is supported");
}

}  // namespace
}  // namespace baton
