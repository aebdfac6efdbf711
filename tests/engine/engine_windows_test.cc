// A whole engine over a model with a sliding-window group. Under all conditions, tokens and logits
// are those of the reference, and every block of both groups is released.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "engine/in_process_pair.h"
#include "engine/model_loader.h"
#include "engine/perplexity.h"
#include "tests/engine/window_engine.h"

namespace baton {
namespace {

struct Surroundings {
  const char* name;
  std::function<void(EngineOptions&)> set;
};

class EngineWindows : public ::testing::TestWithParam<Surroundings> {};

INSTANTIATE_TEST_SUITE_P(
    Surroundings, EngineWindows,
    ::testing::Values(
        Surroundings{"Batches", [](EngineOptions&) {}},
        Surroundings{"NoPrefixCache", [](EngineOptions& o) { o.prefix_cache = false; }},
        Surroundings{"ChunkOnly", [](EngineOptions& o) { o.cache_kind = CacheKind::kChunkOnly; }},
        Surroundings{"SmallChunks", [](EngineOptions& o) { o.max_chunk_tokens = 5; }},
        Surroundings{"ChunksOfAWindow", [](EngineOptions& o) { o.max_chunk_tokens = 24; }},
        Surroundings{"SmallBudget", [](EngineOptions& o) { o.token_budget = 17; }},
        Surroundings{"BlocksOfOne",
                     [](EngineOptions& o) {
                       o.block_size = 1;
                       o.kv_blocks = 1600;
                     }},
        Surroundings{"BlocksOf64",
                     [](EngineOptions& o) {
                       o.block_size = 64;
                       o.kv_blocks = 25;
                     }},
        Surroundings{"LayerMajor", [](EngineOptions& o) { o.layout = KvLayoutKind::kLayerMajor; }},
        Surroundings{"Contiguous", [](EngineOptions& o) { o.paged = false; }},
        Surroundings{"Eager", [](EngineOptions& o) { o.graph = false; }},
        Surroundings{"Threads", [](EngineOptions& o) { o.threads = 3; }},
        Surroundings{"Plain", [](EngineOptions& o) { o.instruction_set = "plain"; }},
        Surroundings{"Int8", [](EngineOptions& o) { o.kv_type = KvType::kInt8; }},
        Surroundings{"Int8SmallChunksLayerMajor",
                     [](EngineOptions& o) {
                       o.kv_type = KvType::kInt8;
                       o.max_chunk_tokens = 7;
                       o.layout = KvLayoutKind::kLayerMajor;
                     }},
        Surroundings{"Fp8", [](EngineOptions& o) { o.kv_type = KvType::kFp8; }},
        Surroundings{"Preempted",
                     [](EngineOptions& o) {
                       o.block_size = 8;
                       o.kv_blocks = 26;
                     }},
        Surroundings{"Async", [](EngineOptions& o) { o.device = "cpu-async"; }},
        Surroundings{"AsyncDepthTwo",
                     [](EngineOptions& o) {
                       o.device = "cpu-async";
                       o.steps_in_flight = 2;
                       o.max_chunk_tokens = 11;
                     }},
        Surroundings{"AsyncDepthTwoPreempted",
                     [](EngineOptions& o) {
                       o.device = "cpu-async";
                       o.steps_in_flight = 2;
                       o.block_size = 8;
                       o.kv_blocks = 26;
                       o.max_chunk_tokens = 16;
                     }}),
    [](const auto& info) { return info.param.name; });

TEST_P(EngineWindows, AnswersEqualTheReference) {
  EngineOptions options = WindowOptions();
  GetParam().set(options);
  const bool preempted = std::string_view(GetParam().name).find("Preempted") != std::string::npos;
  const EngineStatus status = ExpectReferenceAnswers(options, preempted);
  EXPECT_EQ(status.preemptions > 0, preempted);
  if (status.prefix_cache && !preempted) {
    EXPECT_GT(status.cache.hit_tokens, 100) << "the second round";
  }
}

int64_t ComputedBy(Engine& engine) { return engine.Inspect().status.prefill_tokens; }

// The prefill engine's blocks are larger than the decode engine's, or of the same size.
TEST(EngineWindowPair, AnswersEqualTheReferenceIfTheSendersBlocksAreNotSmaller) {
  const std::vector<GenerateRequest> requests = Requests();
  for (const PairTransport transport :
       {PairTransport::kLoopback, PairTransport::kTcp, PairTransport::kShm}) {
    for (const auto& [block_size, prefill] :
         {std::pair(4, KvGeometry{KvLayoutKind::kBlockMajor, 16}),
          {16, KvGeometry{KvLayoutKind::kLayerMajor, 64}},
          {8, KvGeometry{KvLayoutKind::kLayerMajor, 8}}}) {
      EngineOptions options = WindowOptions();
      options.max_chunk_tokens = 24;
      options.block_size = block_size;
      options.kv_blocks = 1600 / block_size;
      const auto created = InProcessPair::Create(options, transport, prefill);
      ASSERT_TRUE(created.ok()) << created.status();
      InProcessPair& pair = **created;
      ASSERT_EQ(pair.prefill().options().block_size, prefill.block_size);
      int64_t prompt_tokens = 0;
      for (size_t i = 0; i < requests.size(); ++i) {
        const auto sink = std::make_shared<WaitingSink>();
        pair.Generate(requests[i], sink);
        const SinkRecord record = sink->WaitForEnd();
        EXPECT_EQ(AnswerOf(record), Reference(options.kv_type)[i]) << "request " << i;
        ASSERT_TRUE(record.finish.has_value());
        EXPECT_TRUE(record.finish->ledger.prefilled_elsewhere) << "request " << i;
        prompt_tokens += std::ssize(requests[i].prompt);
      }
      EXPECT_EQ(ComputedBy(pair.decode()), 0);
      EXPECT_GT(ComputedBy(pair.prefill()), prompt_tokens / 2) << "the rest was cached there";
      ExpectAllHome(pair.decode());
      ExpectAllHome(pair.prefill());
    }
  }
}

// The receiver refuses the other direction. The decode engine computes the prompts and uses no
// received block.
TEST(EngineWindowPair, SmallerBlocksOfTheSenderChangeNoAnswer) {
  EngineOptions options = WindowOptions();
  options.block_size = 32;
  options.kv_blocks = 50;
  const auto created = InProcessPair::Create(options, PairTransport::kLoopback,
                                             KvGeometry{KvLayoutKind::kBlockMajor, 8});
  ASSERT_TRUE(created.ok()) << created.status();
  const std::vector<GenerateRequest> requests = Requests();
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto sink = std::make_shared<WaitingSink>();
    (*created)->Generate(requests[i], sink);
    const SinkRecord record = sink->WaitForEnd();
    EXPECT_EQ(AnswerOf(record), Reference(options.kv_type)[i]) << "request " << i;
    ASSERT_TRUE(record.finish.has_value());
    EXPECT_FALSE(record.finish->ledger.prefilled_elsewhere) << "request " << i;
  }
  EXPECT_GT(ComputedBy((*created)->decode()), 0);
  ExpectAllHome((*created)->decode());
  ExpectAllHome((*created)->prefill());
}

TEST(EngineWindowPool, PerplexityDoesNotDependOnBlockSizeOrChunk) {
  std::vector<TokenId> tokens;
  for (int32_t i = 0; i < 200; ++i) tokens.push_back((i * 37 + i * i) % 300 + 8);
  double expected = 0;
  for (const int32_t block_size : {1, 16, 64}) {
    for (const int32_t chunk : {9, 128}) {
      EngineOptions options = WindowOptions();
      options.block_size = block_size;
      options.max_chunk_tokens = chunk;
      const LoadedModel model = *LoadModel(options);
      const auto result = MeasurePerplexity(model, options, tokens, nullptr);
      ASSERT_TRUE(result.ok()) << result.status();
      if (expected == 0) expected = result->nll;
      EXPECT_EQ(result->nll, expected);
    }
  }
}

}  // namespace
}  // namespace baton
