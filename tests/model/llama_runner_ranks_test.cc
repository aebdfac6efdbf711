// The ranks of a tensor-parallel group together give the bits of a single runner.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "model/tensor_parallel_runner.h"
#include "tests/model/conversation.h"
#include "tests/model/divisible_model.h"
#include "tests/model/tiny_model.h"

namespace baton {
namespace {

TinyModel Divisible(GgmlType type, bool asynchronous = false) {
  static const auto* const floats = new std::string(DivisibleModelBytes(GgmlType::kF32));
  static const auto* const bytes = new std::string(DivisibleModelBytes(GgmlType::kQ8_0));
  return TinyModel(*ParseGguf(type == GgmlType::kF32 ? *floats : *bytes), 2, asynchronous);
}

// Chunk sizes that end inside blocks and inside int8 groups of 32.
TEST(LlamaRunnerRanks, EveryDegreeGivesTheSameLogits) {
  const auto tokens = TinyTokens(45, 4);
  for (const GgmlType type : {GgmlType::kF32, GgmlType::kQ8_0}) {
    const TinyModel model = Divisible(type);
    const auto expected = TinyRunner(model, {}).Decode(0, tokens, 8, 64);
    for (const int32_t degree : {2, 3, 4, 12}) {
      const TinyRanks ranks(*model.file, degree);
      for (const int32_t chunk : {1, 7, 64}) {
        TinyRunner runner(model, {}, ranks.weights.get());
        EXPECT_EQ(runner.Decode(0, tokens, 8, chunk), expected)
            << "degree " << degree << ", chunks of " << chunk;
      }
    }
  }
}

TEST(LlamaRunnerRanks, EveryWeightTypeGivesTheSameLogits) {
  const auto tokens = TinyTokens(40, 5);
  for (const char* name : {"q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "f16", "bf16", "k-types",
                           "untied-q4_0", "window-q4_0", "llama3-rope-q4_0", "yarn-rope-f16"}) {
    const TinyModel model(name, 1);
    const TinyRanks ranks(*model.file, 2);
    TinyRunner runner(model, {}, ranks.weights.get());
    EXPECT_EQ(runner.Decode(3, tokens, 6, 64), TinyRunner(model, {}).Decode(3, tokens, 6, 64))
        << name;
  }
}

// Every rank writes and reads its heads in the same rows.
TEST(LlamaRunnerRanks, EveryPoolGivesTheSameLogitsAndTheSameBytes) {
  const TinyModel model = Divisible(GgmlType::kQ8_0);
  const TinyRanks ranks(*model.file, 3);
  const auto tokens = TinyTokens(40, 6);
  for (const KvType type :
       {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kInt8, KvType::kFp8}) {
    for (const KvLayoutKind layout : {KvLayoutKind::kBlockMajor, KvLayoutKind::kLayerMajor}) {
      for (const bool paged : {true, false}) {
        if (!paged && layout == KvLayoutKind::kBlockMajor) continue;
        const TinyPool pool{.layout = layout, .type = type, .block_size = 8, .paged = paged};
        TinyRunner one(model, pool);
        TinyRunner all(model, pool, ranks.weights.get());
        EXPECT_EQ(all.Decode(2, tokens, 5, 16), one.Decode(2, tokens, 5, 16))
            << KvTypeName(type) << " " << KvLayoutKindName(layout) << " paged " << paged;
        EXPECT_TRUE(std::ranges::equal(all.part(0), one.part(0))) << KvTypeName(type);
      }
    }
  }
}

TEST(LlamaRunnerRanks, DrawsAndTokensThatTheHostDoesNotKnowAreTheSame) {
  for (const GgmlType type : {GgmlType::kF32, GgmlType::kQ8_0}) {
    const TinyModel model = Divisible(type);
    for (const bool graph : {false, true}) {
      const TinyPool pool{.graph = graph};
      const Said expected = OneAfterTheOther(model, pool);
      const TinyRanks ranks(*model.file, 4, /*threads=*/2);
      TinyRunner one(model, pool, ranks.weights.get());
      EXPECT_EQ(OneAfterTheOther(one), expected);
      TinyRunner two(model, pool, ranks.weights.get());
      EXPECT_EQ(two.runner->max_in_flight(), 2);
      EXPECT_EQ(TwoInFlight(two), expected);
      EXPECT_EQ(two.runner->counters().graph_replays > 0, graph);
    }
  }
}

TEST(LlamaRunnerRanks, CopiesOfBlocksCopyTheHeadsOfAllRanks) {
  const TinyModel model = Divisible(GgmlType::kF32);
  const TinyRanks ranks(*model.file, 3);
  for (const KvType type : {KvType::kF16, KvType::kInt8, KvType::kFp8}) {
    TinyRunner runner(model, {.type = type}, ranks.weights.get());
    ExpectCopiesRunBetweenSteps(runner);
  }
}

// Ranks drop rows at different times, but no rank leaves out a collective.
TEST(LlamaRunnerRanks, AChunkThatIsNoLongerWantedDoesNotChangeTheOthers) {
  const TinyModel model = Divisible(GgmlType::kQ8_0);
  const TinyRanks ranks(*model.file, 3);
  const auto tokens = TinyTokens(30, 8);
  TinyRunner reference(model, {});
  const auto expected = reference.Decode(0, tokens, 1, 64);
  for (int dropped_at = 0; dropped_at < 36; dropped_at += 3) {
    for (const int32_t left : {1, 0}) {
      TinyRunner runner(model, {}, ranks.weights.get());
      StepInput input;
      for (const int32_t sequence : {0, 1}) {
        input.chunks.push_back(runner.Chunk(sequence, tokens, 0, 1));
        input.chunks.back().keeps_logits = true;
      }
      int asked = 0;
      input.wanted = [&] { return ++asked > dropped_at ? left : 2; };
      const StepId step = *runner.runner->Submit(input);
      const auto result = runner.runner->Collect(step);
      if (left == 0) {
        EXPECT_TRUE(absl::IsCancelled(result.status())) << result.status();
      } else {
        ASSERT_TRUE(result.ok()) << result.status();
        const auto row = runner.runner->Logits(step, 0);
        EXPECT_EQ(std::vector<float>(row.begin(), row.end()), expected[0]) << dropped_at;
      }
      EXPECT_GT(asked, dropped_at);
    }
  }
}

// A layer is reported when all ranks have written their heads of it.
TEST(LlamaRunnerRanks, ReportedLayersAreCompleteInThePool) {
  const TinyModel model = Divisible(GgmlType::kQ8_0);
  const TinyRanks ranks(*model.file, 4);
  const auto tokens = TinyTokens(16, 9);
  TinyRunner reference(model, {});
  reference.Decode(0, tokens, 1, 64);
  TinyRunner runner(model, {}, ranks.weights.get());
  std::atomic<bool> told{false};
  StepInput input;
  input.chunks.push_back(runner.Chunk(0, tokens, 0, 1));
  const KvLayout& layout = runner.layout().group(0);
  const int32_t block = input.chunks[0].block_table[0].value();
  int32_t layers = 0;
  input.kv_written = [&](int32_t written, int32_t chunks) {
    EXPECT_EQ(chunks, 1);
    for (; layers < written; ++layers) {
      for (int32_t plane = 0; plane < 2; ++plane) {
        const auto piece = [&](TinyRunner& of) {
          return of.part(0).subspan(static_cast<size_t>(layout.PieceOffset(layers, plane, block)),
                                    static_cast<size_t>(layout.piece_bytes(plane)));
        };
        EXPECT_TRUE(std::ranges::equal(piece(runner), piece(reference))) << layers;
      }
    }
    told = true;
  };
  // The step waits in its second layer until the first one is reported.
  std::atomic<bool> woken{false};
  runner.runner->set_waker([&] {
    woken = true;
    woken.notify_all();
  });
  input.wanted = [&] {
    if (woken) told.wait(false);
    return 1;
  };
  const StepId step = *runner.runner->Submit(input);
  woken.wait(false);
  while (!told) runner.runner->Poll();
  told.notify_all();
  ASSERT_TRUE(runner.runner->Collect(step).ok());
  EXPECT_EQ(layers, 2);
}

}  // namespace
}  // namespace baton
