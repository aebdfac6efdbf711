// A scheduler with steps in flight. A step is computed when it is collected, with the block tables
// and tokens of its submission.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "scheduler/scheduler.h"
#include "tests/scheduler/fake_model.h"
#include "tests/scheduler/scheduler_bench.h"

namespace baton {

class PipelinedBench {
 public:
  PipelinedBench(const KvCacheOptions& pool, const SchedulerOptions& options)
      : block_size_(pool.block_size),
        cache_(pool, &clock_),
        scheduler_(options, &cache_),
        slots_(size_t(std::max(pool.num_blocks, pool.max_blocks)) * pool.block_size) {}
  ~PipelinedBench() {
    while (in_flight() > 0) Collect();
  }

  // True if the host samples the sequence's tokens. Then the sequence waits for each of them.
  std::function<bool(SequenceId)> host_draws = [](SequenceId) { return false; };
  // True if the sequence ends with this token. The token is seen when its step is collected.
  std::function<bool(SequenceId, TokenId)> stops_at = [](SequenceId, TokenId) { return false; };

  SequenceSpec Spec(uint64_t id, std::vector<TokenId> prompt, int32_t generate,
                    int32_t priority = 0) {
    SequenceSpec spec{.id = SequenceId(id),
                      .tokens = std::move(prompt),
                      .cache_namespace = kSpace,
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

  // Plans a step, and submits it if it is not empty.
  SchedulerOutput Submit() {
    Flight flight{.plan = scheduler_.Schedule(), .tables = {}, .tokens = {}, .drawn = {}};
    CheckPlan(flight.plan);
    for (const SequenceId id : flight.plan.exhausted) Finish(id);
    for (ScheduledChunk& chunk : flight.plan.chunks) {
      const auto table = cache_.BlockTable(chunk.id);
      flight.tables.emplace_back(table.begin(), table.end());
      flight.tokens.emplace_back();
      if (!chunk.pending) {
        const auto tokens = scheduler_.tokens(chunk.id).subspan(chunk.begin, chunk.count);
        flight.tokens.back().assign(tokens.begin(), tokens.end());
      }
      chunk.draws_next = chunk.samples && !host_draws(chunk.id);
    }
    SchedulerOutput plan = flight.plan;
    if (plan.chunks.empty()) return plan;
    scheduler_.StepSubmitted(plan);
    flights_.push_back(std::move(flight));
    CheckState();
    return plan;
  }
  // Computes and collects the oldest step. If `failed`, its sequences end.
  void Collect(bool failed = false) {
    Flight flight = std::move(flights_.front());
    flights_.pop_front();
    Compute(flight);
    for (const ScheduledChunk& chunk : flight.plan.chunks) {
      if (chunk.draws_next) drawn_before_[chunk.id] = flight.drawn[chunk.id];
    }
    scheduler_.StepCollected(flight.plan);
    if (failed) {
      for (const ScheduledChunk& chunk : flight.plan.chunks) Cancel(chunk.id);
    }
    scheduler_.CommitStep(flight.plan);
    for (const ScheduledChunk& chunk : flight.plan.chunks) {
      if (!scheduler_.Contains(chunk.id)) {
        ++wasted_;
      } else if (chunk.samples) {
        Append(chunk.id, flight.drawn[chunk.id]);
      }
    }
    CheckState();
  }
  int32_t in_flight() const { return static_cast<int32_t>(flights_.size()); }
  int wasted() const { return wasted_; }

  void Append(SequenceId id, TokenId token) {
    scheduler_.AppendToken(id, token);
    const bool full = static_cast<int32_t>(scheduler_.tokens(id).size()) == specs_[id].max_tokens;
    if (full || stops_at(id, token)) Finish(id);
  }
  void Finish(SequenceId id) {
    const auto tokens = scheduler_.tokens(id);
    outputs_[id].assign(tokens.begin() + specs_[id].tokens.size(), tokens.end());
    scheduler_.Finish(id, /*keep_cached=*/true);
  }
  void Cancel(SequenceId id) {
    if (scheduler_.Contains(id)) scheduler_.Finish(id, /*keep_cached=*/id.value() % 2 == 0);
  }
  // A peer's KV of slots [matched, committed) arrives at once, while steps are in flight.
  void KvArrives(SequenceId id, int32_t committed) {
    const std::vector<TokenId> tokens(scheduler_.tokens(id).begin(), scheduler_.tokens(id).end());
    const auto table = cache_.BlockTable(id);
    uint64_t chain = kSpace.low();
    for (int32_t i = 0; i < committed; ++i) {
      chain = FakeModel::Chain(chain, tokens[i]);
      if (i >= cache_.committed(id)) Slot(table, i) = chain;
    }
    scheduler_.KvArrived(id, committed);
    if (committed == static_cast<int32_t>(tokens.size())) Append(id, FakeModel::Next(chain));
  }

  void ExpectAllCorrect() {
    for (const auto& [id, output] : outputs_) {
      const SequenceSpec& spec = specs_[id];
      const auto length = static_cast<int32_t>(spec.tokens.size() + output.size());
      EXPECT_EQ(output, FakeModel::Continuation(kSpace, spec.tokens, length)) << "sequence " << id;
    }
  }
  KvCacheManager& cache() { return cache_; }
  Scheduler& scheduler() { return scheduler_; }
  const std::map<SequenceId, std::vector<TokenId>>& outputs() const { return outputs_; }
  const SequenceSpec& spec(SequenceId id) { return specs_[id]; }

 private:
  struct Flight {
    SchedulerOutput plan;
    std::vector<std::vector<BlockId>> tables;
    std::vector<std::vector<TokenId>> tokens;  // empty: pending
    std::map<SequenceId, TokenId> drawn;
  };

  uint64_t& Slot(std::span<const BlockId> table, int32_t slot) {
    return slots_[size_t(table[slot / block_size_].value()) * block_size_ + slot % block_size_];
  }
  void Compute(Flight& flight) {
    for (size_t i = 0; i < flight.plan.chunks.size(); ++i) {
      const ScheduledChunk& chunk = flight.plan.chunks[i];
      if (chunk.pending) flight.tokens[i] = {drawn_before_.at(chunk.id)};
      uint64_t chain = chunk.begin == 0 ? kSpace.low() : Slot(flight.tables[i], chunk.begin - 1);
      for (int32_t k = 0; k < chunk.count; ++k) {
        chain = FakeModel::Chain(chain, flight.tokens[i][k]);
        Slot(flight.tables[i], chunk.begin + k) = chain;
      }
      flight.drawn[chunk.id] = FakeModel::Next(chain);
    }
  }
  bool InFlight(SequenceId id) const {
    for (const Flight& flight : flights_) {
      for (const ScheduledChunk& chunk : flight.plan.chunks) {
        if (chunk.id == id) return true;
      }
    }
    return false;
  }
  void CheckPlan(const SchedulerOutput& plan) {
    std::map<SequenceId, int> seen;
    for (const ScheduledChunk& chunk : plan.chunks) {
      EXPECT_EQ(++seen[chunk.id], 1);
      EXPECT_LE(chunk.begin + chunk.count, cache_.capacity(chunk.id));
      EXPECT_LT(chunk.begin, specs_[chunk.id].max_tokens) << "a row after the last token";
      const auto known = static_cast<int32_t>(scheduler_.tokens(chunk.id).size());
      EXPECT_EQ(chunk.pending, chunk.begin + chunk.count > known);
      if (chunk.pending) {
        EXPECT_EQ(chunk.begin, known);
        EXPECT_TRUE(InFlight(chunk.id));
        EXPECT_FALSE(host_draws(chunk.id));
      }
    }
    for (const SequenceId id : plan.preempted) EXPECT_FALSE(InFlight(id)) << "sequence " << id;
    for (const SequenceId id : plan.exhausted) EXPECT_FALSE(InFlight(id)) << "sequence " << id;
  }
  void CheckState() {
    ASSERT_TRUE(cache_.CheckConservation().ok()) << cache_.CheckConservation();
    const absl::Status holds = cache_.CheckStepHolds(scheduler_.step_holds().Held());
    ASSERT_TRUE(holds.ok()) << holds;
    if (in_flight() == 0) {
      ASSERT_EQ(cache_.step_blocks(), 0);
    }
  }

  const int32_t block_size_;
  ManualClock clock_;
  KvCacheManager cache_;
  Scheduler scheduler_;
  std::vector<uint64_t> slots_;
  std::deque<Flight> flights_;
  std::map<SequenceId, TokenId> drawn_before_;  // sampled by the last computed step
  std::map<SequenceId, SequenceSpec> specs_;
  std::map<SequenceId, std::vector<TokenId>> outputs_;
  int wasted_ = 0;
};

}  // namespace baton
