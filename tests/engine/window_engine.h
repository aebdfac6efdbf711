// Options, requests and reference answers for engines whose model has a sliding-window group.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <iterator>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "absl/algorithm/container.h"
#include "engine/engine.h"
#include "tests/engine/tiny_engine.h"

namespace baton {

inline EngineOptions WindowOptions() {
  EngineOptions options = TinyOptions();
  options.model = TinyModelFile("window-q4_0");
  options.block_size = 16;  // SmallWindowWorker does not settle automatic values
  return options;
}

// A sender's blocks stay in a transfer until the receiver has confirmed them, also after the last
// token of the answer.
inline bool IsBusy(const EngineStatus& status) {
  return status.running > 0 || absl::c_any_of(status.groups, [](const KvGroupStatus& group) {
           return group.blocks.in_transfer + group.blocks.step > 0;
         });
}

// Waits until nothing runs, and checks that every block is free or cached in both groups.
inline void ExpectAllHome(Engine& engine) {
  EngineStatus status = engine.Inspect().status;
  for (int i = 0; IsBusy(status) && i < 60'000; ++i) {  // a minute or more
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    status = engine.Inspect().status;
  }
  ASSERT_EQ(status.groups.size(), 2u);
  for (const KvGroupStatus& group : status.groups) {
    EXPECT_EQ(group.blocks.free + group.blocks.cached, group.blocks.total);
    EXPECT_EQ(group.evictable, group.blocks.cached);
    EXPECT_EQ(group.size.retiring, 0);
  }
  EXPECT_EQ(status.conservation_error, "");
}

// Prompts shorter than a window, around its edge, and far beyond it. Answers make the window slide
// further.
inline std::vector<GenerateRequest> Requests() {
  std::vector<GenerateRequest> requests;
  const int32_t lengths[] = {3, 15, 23, 24, 25, 47, 80, 150};
  for (uint64_t i = 0; i < std::size(lengths); ++i) {
    requests.push_back(TinyRequest(lengths[i], 30, i));
    if (i == 3) requests.back().sampling.repetition_penalty = 1.2f;
    if (i == 5) requests.back().sampling.logprobs = 2;
  }
  return requests;
}

struct Answer {
  std::vector<TokenId> tokens;
  uint64_t hash = 0;
  bool operator==(const Answer&) const = default;
};

inline Answer AnswerOf(const SinkRecord& record) {
  EXPECT_TRUE(record.finish.has_value()) << record.error.value_or(absl::OkStatus());
  if (!record.finish.has_value()) return {};
  return {record.tokens, record.finish->logits_hash};
}

// Answers one request at a time, without a prefix cache.
inline const std::vector<Answer>& Reference(KvType type) {
  static std::map<KvType, std::vector<Answer>> references;
  std::vector<Answer>& answers = references[type];
  if (!answers.empty()) return answers;
  EngineOptions options = WindowOptions();
  options.kv_type = type;
  options.prefix_cache = false;
  const auto engine = MakeEngine(options);
  for (const GenerateRequest& request : Requests())
    answers.push_back(AnswerOf(Ask(*engine, request)));
  ExpectAllHome(*engine);
  return answers;
}

// Sends all requests at once, in two rounds; the second one uses the cache. With `preempted`,
// repeats rounds until some request was preempted, because timing decides how many run at once.
// Returns the engine's final status.
inline EngineStatus ExpectReferenceAnswers(const EngineOptions& options, bool preempted = false) {
  constexpr int kMostRounds = 50;
  const auto engine = MakeEngine(options);
  const std::vector<GenerateRequest> requests = Requests();
  const auto go_on = [&](int round) {
    return round < 2 ||
           (preempted && round < kMostRounds && engine->Inspect().status.preemptions == 0);
  };
  for (int round = 0; go_on(round); ++round) {
    std::vector<std::shared_ptr<WaitingSink>> sinks;
    for (const GenerateRequest& request : requests) {
      sinks.push_back(std::make_shared<WaitingSink>());
      engine->Generate(request, sinks.back());
    }
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(AnswerOf(sinks[i]->WaitForEnd()), Reference(options.kv_type)[i])
          << "request " << i << " of round " << round;
    }
  }
  ExpectAllHome(*engine);
  return engine->Status();
}

}  // namespace baton
