// A scheduler with a cache and a counting model, run as an engine runs them.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "scheduler/scheduler.h"
#include "tests/scheduler/fake_model.h"

namespace baton {

inline constexpr CacheNamespace kSpace{1};

// The smallest engine: schedule, compute, commit, append, finish at max_tokens.
class SchedulerBench {
 public:
  SchedulerBench(const KvCacheOptions& pool, const SchedulerOptions& options)
      : cache_(pool, &clock_), scheduler_(options, &cache_), model_(&cache_) {}

  SequenceSpec Spec(uint64_t id, std::vector<TokenId> prompt, int32_t generate,
                    int32_t priority = 0, CacheNamespace space = kSpace) {
    SequenceSpec spec{.id = SequenceId(id),
                      .tokens = std::move(prompt),
                      .cache_namespace = space,
                      .max_tokens = 0,
                      .priority = priority};
    spec.max_tokens = static_cast<int32_t>(spec.tokens.size()) + generate;
    specs_[spec.id] = spec;
    return spec;
  }
  absl::Status Add(uint64_t id, std::vector<TokenId> prompt, int32_t generate,
                   int32_t priority = 0) {
    return scheduler_.Add(Spec(id, std::move(prompt), generate, priority));
  }

  SchedulerOutput Step() {
    SchedulerOutput output = scheduler_.Schedule();
    CheckOutput(output);
    std::map<SequenceId, TokenId> sampled;
    for (const ScheduledChunk& chunk : output.chunks) {
      const TokenId next = model_.Compute(chunk.id, specs_[chunk.id].cache_namespace,
                                          scheduler_.tokens(chunk.id), chunk.begin, chunk.count);
      if (chunk.samples) sampled[chunk.id] = next;
    }
    scheduler_.CommitStep(output);
    for (const auto& [id, token] : sampled) Append(id, token);
    for (const SequenceId id : output.exhausted) Finish(id);
    CheckState();
    return output;
  }
  void Append(SequenceId id, TokenId token) {
    scheduler_.AppendToken(id, token);
    if (static_cast<int32_t>(scheduler_.tokens(id).size()) == specs_[id].max_tokens) Finish(id);
  }
  void Finish(SequenceId id) {
    const auto tokens = scheduler_.tokens(id);
    outputs_[id].assign(tokens.begin() + specs_[id].tokens.size(), tokens.end());
    scheduler_.Finish(id, /*keep_cached=*/true);
  }
  void Cancel(SequenceId id) { scheduler_.Finish(id, /*keep_cached=*/id.value() % 2 == 0); }

  // The peer has computed the KV of slots [matched, committed), and the first token if the prompt
  // is complete.
  void KvArrives(SequenceId id, int32_t committed) {
    const auto tokens = scheduler_.tokens(id);
    const int32_t matched = cache_.committed(id);
    std::optional<TokenId> first;
    if (committed > matched) {
      first = model_.Land(id, specs_[id].cache_namespace, tokens, matched, committed - matched);
    }
    const bool whole = committed == static_cast<int32_t>(tokens.size());
    scheduler_.KvArrived(id, committed);
    if (whole) Append(id, *first);
  }

  void ExpectTokens(uint64_t id, int32_t generate) {
    const SequenceSpec& spec = specs_[SequenceId(id)];
    EXPECT_EQ(outputs_[SequenceId(id)],
              FakeModel::Continuation(spec.cache_namespace, spec.tokens,
                                      static_cast<int32_t>(spec.tokens.size()) + generate))
        << "sequence " << id;
  }
  void ExpectAllCorrect() {
    for (const auto& [id, output] : outputs_) {
      ExpectTokens(id.value(), static_cast<int32_t>(output.size()));
    }
  }

  KvCacheManager& cache() { return cache_; }
  Scheduler& scheduler() { return scheduler_; }
  const std::map<SequenceId, std::vector<TokenId>>& outputs() const { return outputs_; }
  const SequenceSpec& spec(SequenceId id) { return specs_[id]; }
  // `mixed`: prompt tokens beside decodes; 0: no limit.
  void set_budget_to_check(int32_t budget, int32_t mixed = 0) {
    budget_ = budget;
    mixed_ = mixed;
  }

 private:
  void CheckOutput(const SchedulerOutput& output) {
    int32_t total = 0;
    int32_t decodes = 0;  // rows of sequences with a generated token
    int32_t rows = 0;     // last rows of prompts included
    std::map<SequenceId, int> seen;
    for (const ScheduledChunk& chunk : output.chunks) {
      EXPECT_EQ(++seen[chunk.id], 1);
      EXPECT_EQ(chunk.begin, cache_.committed(chunk.id));
      EXPECT_GE(chunk.count, 1);
      EXPECT_LE(chunk.begin + chunk.count, cache_.capacity(chunk.id));
      EXPECT_EQ(chunk.samples, chunk.begin + chunk.count ==
                                   static_cast<int32_t>(scheduler_.tokens(chunk.id).size()));
      EXPECT_EQ(scheduler_.phase(chunk.id), SequencePhase::kRunning);
      total += chunk.count;
      const bool generated = outputs_.contains(chunk.id) && !outputs_.at(chunk.id).empty();
      rows += chunk.count == 1 && chunk.samples ? 1 : 0;
      decodes += chunk.count == 1 && chunk.samples && generated ? 1 : 0;
    }
    for (const SequenceId id : output.preempted) {
      EXPECT_THAT(output.admitted, ::testing::Not(::testing::Contains(id)));
      EXPECT_EQ(scheduler_.phase(id), SequencePhase::kWaiting);
    }
    EXPECT_EQ(total, output.total_tokens);
    EXPECT_LE(total, budget_);
    EXPECT_TRUE(decodes == 0 || output.decodes);
    if (mixed_ > 0 && output.decodes) {
      EXPECT_LE(total - rows, mixed_);
    }
  }
  void CheckState() {
    ASSERT_TRUE(cache_.CheckConservation().ok()) << cache_.CheckConservation();
    for (const auto& [id, spec] : specs_) {
      if (cache_.Contains(id)) model_.ExpectKv(id, spec.cache_namespace, scheduler_.tokens(id));
    }
  }

  ManualClock clock_;
  KvCacheManager cache_;
  Scheduler scheduler_;
  FakeModel model_;
  int32_t budget_ = INT32_MAX;
  int32_t mixed_ = 0;
  std::map<SequenceId, SequenceSpec> specs_;  // by id, with the original prompts
  std::map<SequenceId, std::vector<TokenId>> outputs_;
};

inline KvCacheOptions Pool(int32_t blocks, int32_t block_size = 4) {
  KvCacheOptions options;
  options.num_blocks = blocks;
  options.block_size = block_size;
  return options;
}

inline SchedulerOptions Budget(int32_t tokens, int32_t max_running = 64) {
  SchedulerOptions options;
  options.token_budget = options.max_chunk_tokens = tokens;
  options.max_running = max_running;
  return options;
}

inline std::vector<TokenId> Prompt(int32_t length, TokenId first = 0) {
  std::vector<TokenId> tokens(length);
  for (int32_t i = 0; i < length; ++i) tokens[i] = first + i % 40;
  return tokens;
}

}  // namespace baton
