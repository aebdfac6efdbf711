// A whole engine with the numerics t1-sm80 and t1-sm90. Under all conditions, answers have the same
// bits.
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "engine/engine.h"
#include "engine/in_process_pair.h"
#include "tests/engine/tiny_engine.h"

namespace baton {
namespace {

EngineOptions T1Options(const std::string& model, KvType type,
                        const std::string& numerics = "t1-sm90") {
  EngineOptions options = TinyOptions();
  options.model = TinyModelFile(model);
  options.kv_type = type;
  options.numerics = numerics;
  return options;
}

// Prompts around the borders of tiles and segments.
std::vector<GenerateRequest> Requests() {
  std::vector<GenerateRequest> requests;
  for (const int32_t length : {1, 63, 130, 255}) {
    requests.push_back(TinyRequest(length, 5, requests.size()));
  }
  return requests;
}

// The tokens and hashes of all requests, sent one after the other or at once.
struct Answers {
  std::vector<std::vector<TokenId>> tokens;
  std::vector<uint64_t> hashes;
  bool operator==(const Answers&) const = default;
};

template <typename Engines>
Answers AskAll(Engines& engine, bool at_once) {
  Answers answers;
  std::vector<std::shared_ptr<WaitingSink>> sinks;
  for (const GenerateRequest& request : Requests()) {
    sinks.push_back(std::make_shared<WaitingSink>());
    engine.Generate(request, sinks.back());
    if (!at_once) sinks.back()->WaitForEnd();
  }
  for (const auto& sink : sinks) {
    const SinkRecord record = sink->WaitForEnd();
    EXPECT_TRUE(record.finish.has_value()) << record.error.value_or(absl::OkStatus());
    if (!record.finish.has_value()) continue;
    answers.tokens.push_back(record.tokens);
    answers.hashes.push_back(record.finish->logits_hash);
  }
  return answers;
}

Answers AnswersOf(const EngineOptions& options, bool at_once) {
  const auto engine = Engine::Create(options);
  EXPECT_TRUE(engine.ok()) << engine.status();
  return engine.ok() ? AskAll(**engine, at_once) : Answers();
}

struct Surroundings {
  const char* name;
  std::function<void(EngineOptions&)> set;
};
const Surroundings kSurroundings[] = {
    {"batches", [](EngineOptions&) {}},
    {"small chunks", [](EngineOptions& o) { o.max_chunk_tokens = 7; }},
    {"blocks of one",
     [](EngineOptions& o) {
       o.block_size = 1;
       o.kv_blocks = 1600;
     }},
    {"blocks of 64",
     [](EngineOptions& o) {
       o.block_size = 64;
       o.kv_blocks = 30;
     }},
    {"layer-major", [](EngineOptions& o) { o.layout = KvLayoutKind::kLayerMajor; }},
    {"contiguous", [](EngineOptions& o) { o.paged = false; }},
    {"eager, three threads",
     [](EngineOptions& o) {
       o.graph = false;
       o.threads = 3;
     }},
    {"asynchronous, two steps in flight",
     [](EngineOptions& o) {
       o.device = "cpu-async";
       o.steps_in_flight = 2;
     }},
};

TEST(EngineNumerics, AnswersOfT1DoNotDependOnTheSurroundings) {
  struct Case {
    std::string model;
    KvType type;
    std::string numerics;
  };
  for (const auto& [model, type, numerics] : {Case{"bf16", KvType::kBF16, "t1-sm90"},
                                              {"f16", KvType::kF16, "t1-sm90"},
                                              {"q4_1", KvType::kInt8, "t1-sm90"},
                                              {"q4_0", KvType::kFp8, "t1-sm90"},
                                              {"bf16", KvType::kF16, "t1-sm80"}}) {
    EngineOptions alone = T1Options(model, type, numerics);
    alone.prefix_cache = false;
    const Answers expected = AnswersOf(alone, /*at_once=*/false);
    ASSERT_EQ(expected.hashes.size(), Requests().size());
    for (const Surroundings& around : kSurroundings) {
      EngineOptions options = T1Options(model, type, numerics);
      around.set(options);
      EXPECT_EQ(AnswersOf(options, /*at_once=*/true), expected) << model << ", " << around.name;
    }
    for (const char* const other : {"r1", "t1-sm80", "t1-sm90"}) {
      if (other == numerics) continue;
      EXPECT_NE(AnswersOf(T1Options(model, type, other), /*at_once=*/true).hashes, expected.hashes)
          << model << ", " << other;
    }
  }
}

TEST(EngineNumerics, AHandOffKeepsTheBitsOfT1) {
  const EngineOptions options = T1Options("bf16", KvType::kBF16);
  const Answers expected = AnswersOf(options, /*at_once=*/true);
  const auto pair = InProcessPair::Create(options, PairTransport::kLoopback,
                                          KvGeometry{KvLayoutKind::kLayerMajor, 32});
  ASSERT_TRUE(pair.ok()) << pair.status();
  EXPECT_EQ(AskAll(**pair, /*at_once=*/true), expected);
  EXPECT_EQ((*pair)->decode().Inspect().status.prefill_tokens, 0);
}

TEST(EngineNumerics, FingerprintsOfDifferentNumericsAreRefusedByName) {
  const auto sm90 = Engine::Create(T1Options("q4_1", KvType::kF16));
  const auto sm80 = Engine::Create(T1Options("q4_1", KvType::kF16, "t1-sm80"));
  const auto r1 = Engine::Create(T1Options("q4_1", KvType::kF16, "auto"));
  ASSERT_TRUE(sm90.ok() && sm80.ok() && r1.ok());
  EXPECT_EQ(CheckCompatible((*sm90)->fingerprint(), (*r1)->fingerprint()).message(),
            "numerics: ours t1-sm90, theirs r1");
  EXPECT_EQ(CheckCompatible((*sm90)->fingerprint(), (*sm80)->fingerprint()).message(),
            "numerics: ours t1-sm90, theirs t1-sm80");
  EXPECT_EQ(CheckCompatible((*sm80)->fingerprint(), (*r1)->fingerprint()).message(),
            "numerics: ours t1-sm80, theirs r1");
}

}  // namespace
}  // namespace baton
