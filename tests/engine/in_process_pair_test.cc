#include "engine/in_process_pair.h"

#include <gtest/gtest.h>

#include "tests/engine/tiny_engine.h"

namespace baton {
namespace {

SinkRecord Ask(InProcessPair& pair, const GenerateRequest& request) {
  auto sink = std::make_shared<WaitingSink>();
  pair.Generate(request, sink);
  return sink->WaitForEnd();
}

class InProcessPairTest : public ::testing::TestWithParam<PairTransport> {};

INSTANTIATE_TEST_SUITE_P(Transports, InProcessPairTest,
                         ::testing::Values(PairTransport::kLoopback, PairTransport::kTcp),
                         [](const auto& info) {
                           return info.param == PairTransport::kLoopback ? "Loopback" : "Tcp";
                         });

TEST_P(InProcessPairTest, AnswersEqualOneEngineBitForBit) {
  EngineOptions options = TinyOptions();
  options.max_chunk_tokens = 24;
  const auto single = Engine::Create(options);
  const auto pair = InProcessPair::Create(options, GetParam());
  ASSERT_TRUE(single.ok() && pair.ok());
  for (uint64_t seed = 0; seed < 6; ++seed) {
    const auto prompt_tokens = static_cast<int32_t>(seed < 3 ? 16 * (seed + 1) : 50 + seed);
    const GenerateRequest request = TinyRequest(prompt_tokens, seed == 5 ? 1 : 10, seed);
    const SinkRecord one = Ask(**single, request);
    const SinkRecord two = Ask(**pair, request);
    ASSERT_TRUE(one.finish.has_value() && two.finish.has_value()) << seed;
    EXPECT_FALSE(two.ticket.has_value());
    EXPECT_EQ(two.tokens, one.tokens);
    EXPECT_EQ(two.text, one.text);
    EXPECT_EQ(two.finish->logits_hash, one.finish->logits_hash);
    EXPECT_GT(two.finish->ledger.kv_bytes, 0) << "the decode engine computed the prompt";
  }
  EXPECT_EQ((*pair)->decode().Inspect().status.prefill_tokens, 0);
  EXPECT_EQ((*pair)->prefill().Inspect().status.decode_tokens, 0);
  EXPECT_EQ((*pair)->decode().Inspect().status.cache.blocks.in_transfer, 0);
}

TEST_P(InProcessPairTest, AnswersAreTheSameBetweenDifferentBlockSizes) {
  EngineOptions options = TinyOptions();
  options.block_size = 16;
  options.max_chunk_tokens = 24;
  const auto single = Engine::Create(options);
  ASSERT_TRUE(single.ok());
  for (const KvGeometry& pool : {KvGeometry{KvLayoutKind::kLayerMajor, options.block_size},
                                 KvGeometry{KvLayoutKind::kBlockMajor, options.block_size * 2},
                                 KvGeometry{KvLayoutKind::kLayerMajor, options.block_size / 4}}) {
    const auto pair = InProcessPair::Create(options, GetParam(), pool);
    ASSERT_TRUE(pair.ok());
    EXPECT_EQ((*pair)->prefill().options().block_size, pool.block_size);
    EXPECT_EQ((*pair)->prefill().options().layout, pool.layout);
    for (uint64_t seed = 0; seed < 4; ++seed) {
      const GenerateRequest request = TinyRequest(static_cast<int32_t>(15 + seed * 17), 8, seed);
      const SinkRecord one = Ask(**single, request);
      const SinkRecord two = Ask(**pair, request);
      ASSERT_TRUE(one.finish.has_value() && two.finish.has_value()) << seed;
      EXPECT_EQ(two.tokens, one.tokens);
      EXPECT_EQ(two.finish->logits_hash, one.finish->logits_hash);
    }
    EXPECT_EQ((*pair)->decode().Inspect().status.prefill_tokens, 0);
  }
  for (const int32_t block_size : {-1, 12, 256}) {
    EXPECT_EQ(InProcessPair::Create(options, GetParam(),
                                    KvGeometry{KvLayoutKind::kBlockMajor, block_size})
                  .status()
                  .code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST_P(InProcessPairTest, ShutsDownWithRequestsInEveryState) {
  for (int waits = 0; waits < 4; ++waits) {
    std::vector<std::shared_ptr<WaitingSink>> sinks;
    {
      const auto pair = InProcessPair::Create(TinyOptions(), GetParam());
      ASSERT_TRUE(pair.ok());
      for (uint64_t i = 0; i < 12; ++i) {
        sinks.push_back(std::make_shared<WaitingSink>());
        (*pair)->Generate(TinyRequest(60, 400, i), sinks.back());
      }
      for (int i = 0; i < waits; ++i) {
        sinks[i]->WaitFor([](const SinkRecord& record) { return !record.tokens.empty(); });
      }
    }
    for (const auto& sink : sinks) {
      EXPECT_TRUE(sink->WaitFor([](const SinkRecord&) { return true; }).ended());
    }
  }
}

TEST_P(InProcessPairTest, CancelReachesThePrefillToo) {
  const auto pair = InProcessPair::Create(TinyOptions(), GetParam());
  ASSERT_TRUE(pair.ok());
  // A thread that the system stops between the two calls may come after the answer's end.
  bool cancelled = false;
  for (int i = 0; i < 100 && !cancelled; ++i) {
    auto sink = std::make_shared<WaitingSink>();
    (*pair)->Cancel((*pair)->Generate(TinyRequest(60, 400, 1), sink));
    const SinkRecord record = sink->WaitForEnd();
    cancelled = record.error.has_value();
    if (cancelled) {
      EXPECT_EQ(record.error->code(), absl::StatusCode::kCancelled);
    }
  }
  EXPECT_TRUE(cancelled);
  EXPECT_TRUE(Ask(**pair, TinyRequest(60, 4, 1)).finish.has_value());
}

// The prefill engine refuses because its queue is short. The decode engine computes the prompts
// itself.
TEST_P(InProcessPairTest, ARefusedPrefillIsComputedByTheDecodeEngine) {
  EngineOptions options = TinyOptions();
  options.max_waiting = 1;
  options.max_chunk_tokens = 1;
  options.max_running = 8;
  const auto pair = InProcessPair::Create(options, GetParam());
  ASSERT_TRUE(pair.ok());
  std::vector<std::shared_ptr<WaitingSink>> sinks;
  for (uint64_t i = 0; i < 6; ++i) {
    sinks.push_back(std::make_shared<WaitingSink>());
    (*pair)->Generate(TinyRequest(30, 3, i), sinks.back());
  }
  for (const auto& sink : sinks) EXPECT_EQ(sink->WaitForEnd().tokens.size(), 3u);
}

TEST(InProcessPair, CreationFailsWithTheEnginesError) {
  EngineOptions options = TinyOptions();
  options.model = "/nowhere.gguf";
  EXPECT_FALSE(InProcessPair::Create(options, PairTransport::kLoopback).ok());
}

}  // namespace
}  // namespace baton
