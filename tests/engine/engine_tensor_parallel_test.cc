// Whole engines whose model is computed by several ranks: the answers have the bits of one rank,
// and engines of different degrees exchange KV.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/in_process_pair.h"
#include "tests/engine/tiny_engine.h"
#include "tests/model/divisible_model.h"

namespace baton {
namespace {

EngineOptions Options(int32_t degree) {
  static const auto* const file = new std::string(DivisibleModelFile(GgmlType::kQ8_0));
  EngineOptions options = TinyOptions();
  options.model = *file;
  options.tensor_parallel = degree;
  return options;
}

std::unique_ptr<Engine> Make(const EngineOptions& options) {
  auto engine = Engine::Create(options);
  EXPECT_TRUE(engine.ok()) << engine.status();
  return *std::move(engine);
}

GenerateRequest Request(uint64_t seed) {
  GenerateRequest request = TinyRequest(static_cast<int32_t>(15 + 13 * seed), 10, seed);
  if (seed % 4 == 3) request.sampling.repetition_penalty = 1.2f;  // drawn on the host
  if (seed % 4 == 1) request.sampling.logprobs = 2;
  return request;
}

void ExpectSame(const SinkRecord& got, const SinkRecord& want, const std::string& where) {
  ASSERT_TRUE(got.finish.has_value()) << where << got.error.value_or(absl::OkStatus());
  EXPECT_EQ(got.tokens, want.tokens) << where;
  EXPECT_EQ(got.text, want.text) << where;
  EXPECT_EQ(got.finish->logits_hash, want.finish->logits_hash) << where;
}

TEST(EngineTensorParallel, AnswersAreTheSameAtEveryDegree) {
  for (const KvType type : {KvType::kF16, KvType::kInt8, KvType::kFp8}) {
    EngineOptions options = Options(1);
    options.kv_type = type;
    const auto reference = Make(options);
    std::vector<SinkRecord> alone;
    for (uint64_t i = 0; i < 6; ++i) alone.push_back(Ask(*reference, Request(i)));
    int32_t chunk = 5;
    for (const int32_t degree : {2, 3, 4}) {
      for (const int32_t steps : {1, 2}) {
        options.tensor_parallel = degree;
        options.steps_in_flight = steps;
        options.max_chunk_tokens = chunk += 6;
        options.block_size = degree == 3 ? 8 : 16;
        options.kv_blocks = steps == 2 ? 160 / options.block_size : 100;  // 2: some are preempted
        const auto engine = Make(options);
        const std::string where =
            "degree " + std::to_string(degree) + ", " + std::to_string(steps) + " steps in flight ";
        std::vector<std::shared_ptr<WaitingSink>> sinks;
        for (uint64_t i = 0; i < 6; ++i) {
          sinks.push_back(std::make_shared<WaitingSink>());
          engine->Generate(Request(i), sinks.back());
        }
        for (uint64_t i = 0; i < 6; ++i) ExpectSame(sinks[i]->WaitForEnd(), alone[i], where);
        EXPECT_EQ(engine->Inspect().status.cache.blocks.owned, 0);
        EXPECT_EQ(engine->Inspect().status.conservation_error, "");
      }
    }
  }
}

// The second question of a session finds the KV of the first one and its answer.
TEST(EngineTensorParallel, ASessionContinuesFromThePrefixCache) {
  const auto one = Make(Options(1));
  const auto three = Make(Options(3));
  GenerateRequest request = Request(2);
  for (int turn = 0; turn < 3; ++turn) {
    const SinkRecord want = Ask(*one, request);
    const SinkRecord got = Ask(*three, request);
    ExpectSame(got, want, "turn " + std::to_string(turn));
    EXPECT_EQ(got.finish->ledger.cached_tokens, want.finish->ledger.cached_tokens);
    EXPECT_EQ(got.finish->ledger.cached_tokens > 0, turn > 0);
    request.prompt.insert(request.prompt.end(), got.tokens.begin(), got.tokens.end());
    for (TokenId token = 40; token < 57; ++token) request.prompt.push_back(token + turn);
  }
}

// The choices share the prompt's last block until one of them writes to it.
TEST(EngineTensorParallel, ChoicesAreTheSame) {
  for (const KvType type : {KvType::kF16, KvType::kInt8, KvType::kFp8}) {
    EngineOptions options = Options(1);
    options.kv_type = type;
    const auto one = Make(options);
    options.tensor_parallel = 3;
    options.steps_in_flight = 2;
    const auto three = Make(options);
    GenerateRequest request = Request(1);
    request.n = 4;
    const SinkRecord want = Ask(*one, request);
    const SinkRecord got = Ask(*three, request);
    ExpectSame(got, want, "choice 0");
    for (int32_t i = 1; i < 4; ++i) ExpectSame(got.others.at(i), want.others.at(i), "choice");
  }
}

TEST(EngineTensorParallel, CancelledRequestsEndAndTheOthersKeepTheirAnswers) {
  const auto one = Make(Options(1));
  EngineOptions options = Options(4);
  options.steps_in_flight = 2;
  const auto engine = Make(options);
  const SinkRecord want = Ask(*one, Request(4));
  for (int round = 0; round < 8; ++round) {
    HoldingSink stays, ends;
    engine->Generate(Request(4), stays.sink());
    // The request is cancelled before its first step in even rounds, after its first token in odd
    // ones.
    if (round % 2 == 0) stays.WaitUntilHeld();
    if (round % 2 == 1) stays.GoOn();
    const RequestHandle handle = engine->Generate(TinyRequest(200 + round, 50, round), ends.sink());
    if (round % 2 == 1) ends.WaitUntilHeld();
    engine->Cancel(handle);
    stays.GoOn();
    ends.GoOn();
    const SinkRecord ended = ends.sink()->WaitForEnd();
    ASSERT_TRUE(ended.error.has_value());
    EXPECT_EQ(ended.error->code(), absl::StatusCode::kCancelled);
    ExpectSame(stays.sink()->WaitForEnd(), want, "round " + std::to_string(round));
  }
  EXPECT_EQ(engine->Inspect().status.cache.blocks.owned, 0);
}

TEST(EngineTensorParallel, ADegreeThatDoesNotDivideTheHeadsIsRefused) {
  EXPECT_EQ(
      Engine::Create(Options(5)).status(),
      absl::InvalidArgumentError("tensor-parallel is 5; it must divide the model's 12 KV heads"));
  EXPECT_EQ(Engine::Create(Options(65)).status(),
            absl::InvalidArgumentError("tensor-parallel is 65; it must be in 1 to 64"));
}

TEST(EngineTensorParallel, ReportsNameTheRanks) {
  EXPECT_THAT(Make(Options(3))->StartupReport(), ::testing::HasSubstr("device 3 ranks, each on "));
}

TEST(EngineTensorParallel, EnginesOfDifferentDegreesExchangeKv) {
  const auto one = Make(Options(1));
  struct Degrees {
    int32_t prefill, decode;
  };
  int32_t block_size = 64;
  for (const PairTransport transport :
       {PairTransport::kLoopback, PairTransport::kTcp, PairTransport::kShm}) {
    for (const KvType type : {KvType::kF16, KvType::kInt8, KvType::kFp8}) {
      for (const auto& [prefill, decode] : {Degrees{3, 1}, Degrees{1, 3}, Degrees{2, 4}}) {
        EngineOptions options = Options(1);
        options.kv_type = type;
        options.max_chunk_tokens = 24;
        const auto reference = Make(options);
        options.tensor_parallel = decode;
        options.steps_in_flight = 1;
        block_size = block_size == 64 ? 4 : 2 * block_size;
        const auto pair = InProcessPair::Create(
            options, transport, KvGeometry{KvLayoutKind::kLayerMajor, block_size}, prefill);
        ASSERT_TRUE(pair.ok()) << pair.status();
        EXPECT_EQ((*pair)->prefill().options().tensor_parallel, prefill);
        EXPECT_EQ((*pair)->decode().options().tensor_parallel, decode);
        for (uint64_t seed = 0; seed < 3; ++seed) {
          auto sink = std::make_shared<WaitingSink>();
          (*pair)->Generate(Request(seed), sink);
          const SinkRecord got = sink->WaitForEnd();
          ExpectSame(got, Ask(*reference, Request(seed)),
                     "from degree " + std::to_string(prefill) + " to " + std::to_string(decode));
          EXPECT_GT(got.finish->ledger.kv_bytes, 0);
        }
        EXPECT_EQ((*pair)->decode().Inspect().status.prefill_tokens, 0);
        EXPECT_EQ((*pair)->prefill().Inspect().status.decode_tokens, 0);
      }
    }
  }
}

}  // namespace
}  // namespace baton
