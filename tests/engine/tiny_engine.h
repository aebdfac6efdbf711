// Options and requests for engines with the small model of tests/testdata.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/check.h"
#include "engine/engine.h"
#include "tests/engine/waiting_sink.h"

namespace baton {

inline std::string TinyModelFile(const std::string& name = "q4_1") {
  return std::string(BATON_TESTDATA) + "/models/tiny-" + name + ".gguf";
}

inline EngineOptions TinyOptions() {
  EngineOptions options;
  options.model = TinyModelFile();
  options.threads = 1;
  options.kv_blocks = 100;
  options.hash_logits = true;
  return options;
}

inline std::unique_ptr<Engine> MakeEngine(const EngineOptions& options) {
  auto engine = Engine::Create(options);
  CHECK(engine.ok()) << engine.status();
  return *std::move(engine);
}

inline GenerateRequest TinyRequest(int32_t prompt_tokens, int32_t max_tokens, uint64_t seed) {
  GenerateRequest request;
  request.request_id = "tiny";
  for (int32_t i = 0; i < prompt_tokens; ++i) {
    request.prompt.push_back(static_cast<TokenId>((i * 31 + seed * 7) % 300 + 8));
  }
  request.sampling.max_tokens = max_tokens;
  request.sampling.ignore_eos = true;
  request.sampling.temperature = seed % 2 == 0 ? 0.0f : 1.0f;
  request.sampling.seed = seed;
  return request;
}

inline SinkRecord Ask(Engine& engine, const GenerateRequest& request) {
  auto sink = std::make_shared<WaitingSink>();
  engine.Generate(request, sink);
  return sink->WaitForEnd();
}

// Sends `count` requests, one after the other. Their seeds count up from that of `request`.
inline std::vector<SinkRecord> AskForSeeds(Engine& engine, GenerateRequest request, int count) {
  std::vector<SinkRecord> records;
  for (int i = 0; i < count; ++i) {
    records.push_back(Ask(engine, request));
    ++*request.sampling.seed;
  }
  return records;
}

}  // namespace baton
