// The parts that a worker's state machines share, with fakes and without a WorkerCore. The test
// generates the events.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cache/kv_cache_manager.h"
#include "common/clock.h"
#include "engine/admission.h"
#include "engine/model_limits.h"
#include "engine/prefix_pull.h"
#include "engine/row_sampler.h"
#include "engine/worker_parts.h"
#include "scheduler/scheduler.h"
#include "tests/engine/fake_transport.h"
#include "tests/engine/fake_worker_parts.h"
#include "tests/engine/recording_sinks.h"

namespace baton {

struct MachineBench {
  explicit MachineBench(int32_t num_blocks = 32, int32_t max_waiting = 64)
      : pool(num_blocks + 1, 4),
        runner(&pool),
        transport(&pool),
        cache({.num_blocks = num_blocks, .block_size = 4}, &clock),
        scheduler({.token_budget = 64,
                   .max_chunk_tokens = 64,
                   .max_running = 8,
                   .max_waiting = max_waiting},
                  &cache),
        tokenizer(MakeByteTokenizer()),
        pulls({}, &cache, &transport, &clock, [this] { return next_transfer_id++; }),
        admission(&cache, &scheduler, &pulls,
                  [this](RequestHandle handle, const absl::Status& why) {
                    ended.emplace_back(handle, why);
                    scheduler.Finish(SequenceOf(handle), /*keep_cached=*/true);
                  }),
        sampler(&runner, *tokenizer) {}

  WorkerParts parts() {
    return {.cache = &cache,
            .scheduler = &scheduler,
            .transport = &transport,
            .tokenizer = tokenizer.get(),
            .clock = &clock};
  }
  static ModelLimits Limits() { return {.vocabulary = kFakeVocabulary, .context_length = 64}; }
  static SequenceSpec Spec(RequestHandle handle, size_t tokens, int32_t priority = 0) {
    return {.id = SequenceOf(handle),
            .tokens = std::vector<TokenId>(tokens, 'x'),
            .cache_namespace = CacheNamespace(0),
            .max_tokens = static_cast<int32_t>(tokens),
            .priority = priority};
  }
  static SamplingParams Greedy() {
    SamplingParams params;
    params.temperature = 0;
    return params;
  }
  // Plans a step and commits it at once, as if the device had computed it.
  SchedulerOutput Step() {
    SchedulerOutput plan = scheduler.Schedule();
    if (plan.chunks.empty()) return plan;
    scheduler.StepSubmitted(plan);
    scheduler.StepCollected(plan);
    scheduler.CommitStep(plan);
    return plan;
  }
  // Puts `tokens` into the prefix cache.
  void Cache(const std::vector<TokenId>& tokens) {
    const RequestHandle handle = 1'000'000 + cached++;
    SequenceSpec spec = Spec(handle, 0);
    spec.tokens = tokens;
    spec.max_tokens = static_cast<int32_t>(tokens.size());
    ASSERT_TRUE(scheduler.Add(std::move(spec)).ok());
    Step();
    scheduler.Finish(SequenceOf(handle), /*keep_cached=*/true);
  }
  // A peer's manifest with these first tokens.
  static HandoffManifest Manifest(std::span<const TokenId> tokens) {
    HandoffManifest manifest;
    for (const TokenId token : tokens) manifest.drawn.emplace_back().token = token;
    return manifest;
  }
  // A row for which the step drew these tokens.
  static SampledRow Row(const std::vector<absl::StatusOr<TokenId>>& drawn, int32_t position) {
    return {.step = StepId(), .row = 0, .position = position, .drawn = drawn};
  }
  TransferEvent Poll() {
    std::vector<TransferEvent> events = transport.Poll();
    EXPECT_EQ(events.size(), 1);
    return events.empty() ? TransferEvent{} : std::move(events.front());
  }

  ManualClock clock;
  ChainPool pool;
  FakeRunner runner;
  FakeTransport transport;
  KvCacheManager cache;
  Scheduler scheduler;
  std::unique_ptr<const Tokenizer> tokenizer;
  uint64_t next_transfer_id = 500;
  PrefixPulls pulls;
  std::vector<std::pair<RequestHandle, absl::Status>> ended;  // requests that the admission ended
  Admission admission;
  RowSampler sampler;
  RequestHandle cached = 0;
};

}  // namespace baton
