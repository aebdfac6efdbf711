// The smallest engine with chunked prompts, for tests of the scheduler.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "cache/chunk_cache.h"
#include "scheduler/scheduler.h"
#include "tests/scheduler/chunked_parts.h"
#include "tests/scheduler/fake_model.h"

namespace baton {

// The smallest engine with chunked prompts and up to `depth` steps in flight.
class ChunkedBench {
 public:
  ChunkedBench(const KvCacheOptions& pool, const SchedulerOptions& options,
               const ChunkCacheOptions& chunk_options, int32_t depth = 1)
      : depth_(depth),
        cache_(pool, &clock_),
        chunks_(chunk_options, &cache_),
        parts_(&cache_, &chunks_),
        model_(&cache_),
        scheduler_(std::make_unique<Scheduler>(options, &cache_)) {
    parts_.set_scheduler(scheduler_.get());
    scheduler_->set_part_source(&parts_);
  }
  ~ChunkedBench() {
    for (const SequenceId id : Live()) Cancel(id);
    while (!in_flight_.empty()) Collect();
    scheduler_.reset();
  }

  absl::Status AddChunked(uint64_t id, const ChunkedRequest& request, int32_t generate,
                          int32_t priority = 0, int32_t forks = 0, bool hand_off = false) {
    const SequenceId main(id);
    parts_.Add(main, request);
    SequenceSpec spec{.id = main,
                      .tokens = request.question,
                      .cache_namespace = Derived(request),
                      .max_tokens = static_cast<int32_t>(request.question.size()) + generate,
                      .priority = priority,
                      .forks = forks,
                      .part_blocks = parts_.BlocksOfParts(main)};
    const absl::Status status =
        hand_off ? scheduler_->AddWaitingForKv(spec) : scheduler_->Add(spec);
    if (!status.ok()) {
      parts_.Ended(main);
      return status;
    }
    FramedModel::Values seen;
    std::vector<FramedModel::Values> values;
    for (const PartOfRequest& part : PartsOf(request, ChunkedParts::kPartSpace)) {
      FramedModel::Values visible;
      for (const size_t i : part.sees) {
        visible.insert(visible.end(), values[i].begin(), values[i].end());
      }
      values.push_back(FramedModel::Literal(visible, part.tokens));
      part_values_[part.key] = values.back();
      seen.insert(seen.end(), values.back().begin(), values.back().end());
    }
    live_[main] = {
        .spec = spec, .seen = std::move(seen), .chunked = true, .waits_for_kv = hand_off};
    return status;
  }
  absl::Status AddOrdinary(uint64_t id, std::vector<TokenId> prompt, int32_t generate,
                           int32_t priority = 0, bool hand_off = false) {
    SequenceSpec spec{.id = SequenceId(id),
                      .tokens = std::move(prompt),
                      .cache_namespace = ChunkedParts::kPartSpace,
                      .priority = priority};
    spec.max_tokens = static_cast<int32_t>(spec.tokens.size()) + generate;
    const absl::Status status =
        hand_off ? scheduler_->AddWaitingForKv(spec) : scheduler_->Add(spec);
    if (status.ok()) live_[spec.id] = {.spec = spec, .seen = {}};
    return status;
  }
  void Cancel(SequenceId id) {
    live_.erase(id);
    scheduler_->Finish(id, /*keep_cached=*/true);
    parts_.Ended(id);
  }
  // Parts whose KV comes from a peer.
  std::vector<SequenceId> WaitingParts() const {
    std::vector<SequenceId> waiting;
    for (const SequenceId id : parts_.InScheduler()) {
      if (scheduler_->phase(id) == SequencePhase::kWaitingForKv) waiting.push_back(id);
    }
    return waiting;
  }
  // The transfer of a part has ended after its first `landed` tokens.
  void PartArrives(SequenceId part, int32_t landed) {
    const FramedModel::Values& values = part_values_.at(parts_.KeyOf(part));
    landed = std::clamp(landed, cache_.matched(part), static_cast<int32_t>(values.size()));
    model_.Land(cache_.BlockTable(part), values, landed);
    scheduler_->PartArrived(part, landed);
    TellMains(part);
  }
  // Main sequences of hand-offs whose question has not arrived.
  std::vector<SequenceId> WaitingQuestions() const {
    std::vector<SequenceId> waiting;
    for (const auto& [id, request] : live_) {
      if (request.waits_for_kv && !request.landed.has_value()) waiting.push_back(id);
    }
    return waiting;
  }
  // The transfer of a question has ended after its first `landed` tokens.
  void QuestionArrives(SequenceId main, int32_t landed) {
    live_.at(main).landed = std::max(landed, cache_.matched(main));
    Join(main);
  }
  // All hand-offs failed: their sequences compute their prompts.
  void HandOffsFail() {
    for (const SequenceId part : WaitingParts()) PartArrives(part, 0);
    for (const SequenceId main : WaitingQuestions()) QuestionArrives(main, 0);
    for (const auto& [id, request] : live_) {
      if (!request.chunked && scheduler_->phase(id) == SequencePhase::kWaitingForKv) {
        scheduler_->KvArrived(id, cache_.matched(id));
      }
    }
  }

  // Plans and submits one step, or collects one. Returns the plan.
  SchedulerOutput Step() {
    if (static_cast<int32_t>(in_flight_.size()) == depth_) Collect();
    SchedulerOutput plan = scheduler_->Schedule();
    for (const BlockCopy& copy : cache_.TakeCopies()) {
      while (!in_flight_.empty()) Collect();
      model_.Copy(copy);
    }
    for (const SequenceId id : plan.exhausted) End(id);
    if (plan.chunks.empty()) {
      if (!in_flight_.empty()) Collect();
      return plan;
    }
    Submit(plan);
    if (depth_ == 1) Collect();
    return plan;
  }
  void Collect() {
    const InFlight step = std::move(in_flight_.front());
    in_flight_.pop_front();
    scheduler_->StepCollected(step.plan);
    std::map<SequenceId, TokenId> sampled;
    for (size_t i = 0; i < step.plan.chunks.size(); ++i) {
      const ScheduledChunk& chunk = step.plan.chunks[i];
      const TokenId next =
          model_.Compute(step.tables[i], step.frames[i].get(), step.tokens[i], chunk.begin);
      if (chunk.samples) sampled[chunk.id] = next;
    }
    scheduler_->CommitStep(step.plan);
    for (const ScheduledChunk& chunk : step.plan.chunks) {
      if (!scheduler_->Contains(chunk.id)) continue;
      TellMains(chunk.id);
    }
    for (const auto& [id, token] : sampled) {
      if (scheduler_->Contains(id)) Append(id, token);
    }
  }
  std::vector<SequenceId> Live() const {
    std::vector<SequenceId> ids;
    for (const auto& [id, request] : live_) ids.push_back(id);
    return ids;
  }
  bool has_work() const { return !in_flight_.empty() || scheduler_->has_work(); }
  // Steps until nothing is left to do. All sequences must end within a bounded number of steps.
  void Drain() {
    const size_t bound = 500 + 3000 * (live_.size() + 1);
    for (size_t steps = 0; has_work(); ++steps) {
      Step();
      Check();
      ASSERT_LT(steps, bound) << live_.size() << " sequences make no progress";
    }
    for (const auto& [id, request] : live_) {
      ADD_FAILURE() << "sequence " << id << " is stuck in phase "
                    << static_cast<int>(scheduler_->phase(id)) << ", chunked " << request.chunked
                    << ", " << scheduler_->tokens(id).size() << " tokens of "
                    << request.spec.max_tokens << ", " << cache_.committed(id) << " committed";
    }
  }
  void Check() {
    ASSERT_TRUE(cache_.CheckConservation().ok()) << cache_.CheckConservation();
    ASSERT_TRUE(chunks_.CheckInvariants().ok()) << chunks_.CheckInvariants();
    const absl::Status steps = cache_.CheckStepHolds(scheduler_->step_holds().Held());
    ASSERT_TRUE(steps.ok()) << steps;
    parts_.ExpectPartsHaveUsers();
    for (const auto& [id, request] : live_) {
      if (scheduler_->phase(id) != SequencePhase::kWaiting) continue;
      ASSERT_FALSE(cache_.Contains(id));
      ASSERT_FALSE(parts_.RefersToParts(id)) << "queued sequence " << id << " refers to parts";
      ASSERT_EQ(scheduler_->frame(id), nullptr);
    }
  }

  KvCacheManager& cache() { return cache_; }
  ChunkCache& chunks() { return chunks_; }
  ChunkedParts& parts() { return parts_; }
  Scheduler& scheduler() { return *scheduler_; }
  // Generated tokens of ended sequences. `exhausted` ones ended early.
  const std::map<SequenceId, std::vector<TokenId>>& outputs() const { return outputs_; }
  int64_t part_tokens() const { return part_tokens_; }  // computed in parts

 private:
  struct Request {
    SequenceSpec spec;
    FramedModel::Values seen;
    bool chunked = false;
    bool waits_for_kv = false;           // of the question, until it is joined with its parts
    std::optional<int32_t> landed = {};  // tokens of the question
  };
  struct InFlight {
    SchedulerOutput plan;
    std::vector<std::vector<BlockId>> tables;
    std::vector<std::shared_ptr<const SequenceFrame>> frames;
    std::vector<std::vector<TokenId>> tokens;
  };

  // Some of a part is committed.
  void TellMains(SequenceId part) {
    for (const SequenceId main : parts_.Committed(part)) {
      live_.at(main).waits_for_kv ? Join(main) : scheduler_->PartsReady(main);
    }
  }
  // Continues a hand-off when its question and all its parts are there.
  void Join(SequenceId main) {
    Request& request = live_.at(main);
    if (!request.landed.has_value() || !parts_.AllDone(main)) return;
    request.waits_for_kv = false;
    const FramedModel::Values values = FramedModel::Literal(request.seen, request.spec.tokens);
    model_.Land(cache_.BlockTable(main), values, *request.landed);
    scheduler_->KvArrived(main, *request.landed);
    if (*request.landed == static_cast<int32_t>(values.size())) {
      Append(main, FakeModel::Next(values.back()));
    }
  }
  // Namespace of full-frame KV: everything that the question sees.
  static CacheNamespace Derived(const ChunkedRequest& request) {
    std::vector<TokenId> ids;
    for (const PartOfRequest& part : PartsOf(request, ChunkedParts::kPartSpace)) {
      for (const uint64_t half : {part.key.hash.low, part.key.hash.high}) {
        ids.push_back(static_cast<TokenId>(half));
        ids.push_back(static_cast<TokenId>(half >> 32));
      }
    }
    const ChunkKey key =
        MakeChunkKey(ChunkedParts::kPartSpace, ChunkKind::kPiece, std::nullopt, ids);
    return CacheNamespace(key.hash.low, key.hash.high);
  }
  void Submit(const SchedulerOutput& plan) {
    InFlight step{.plan = plan, .tables = {}, .frames = {}, .tokens = {}};
    std::map<SequenceId, int> seen;
    int32_t total = 0;
    for (const ScheduledChunk& chunk : plan.chunks) {
      EXPECT_EQ(++seen[chunk.id], 1);
      EXPECT_GE(chunk.count, 1);
      EXPECT_FALSE(chunk.samples && parts_.IsPart(chunk.id));
      const auto frame = scheduler_->frame(chunk.id);
      EXPECT_EQ(chunk.framed, frame != nullptr);
      std::vector<BlockId>& table = step.tables.emplace_back();
      if (frame != nullptr) table = frame->blocks;
      const auto own = cache_.BlockTable(chunk.id);
      table.insert(table.end(), own.begin(), own.end());
      const auto tokens = scheduler_->tokens(chunk.id).subspan(chunk.begin, chunk.count);
      step.tokens.emplace_back(tokens.begin(), tokens.end());
      // The step must not keep the frame's blocks alive; the scheduler's holds do.
      auto description = frame == nullptr ? nullptr : std::make_shared<SequenceFrame>(*frame);
      if (description != nullptr) description->holds.reset();
      step.frames.push_back(std::move(description));
      total += chunk.count;
      if (parts_.IsPart(chunk.id)) part_tokens_ += chunk.count;
    }
    EXPECT_EQ(total, plan.total_tokens);
    scheduler_->StepSubmitted(plan);
    in_flight_.push_back(std::move(step));
  }
  void Append(SequenceId id, TokenId token) {
    Request& request = live_.at(id);
    if (request.spec.forks > 0) {
      --request.spec.forks;
      const SequenceId child(id.value() + 500'000);
      if (request.chunked) parts_.Forked(id, child);
      Request copy = request;
      copy.spec.id = child;
      copy.spec.forks = 0;
      live_[child] = copy;
      scheduler_->Fork(id, child);
      AppendOne(child, token);
    }
    AppendOne(id, token);
  }
  void AppendOne(SequenceId id, TokenId token) {
    scheduler_->AppendToken(id, token);
    if (static_cast<int32_t>(scheduler_->tokens(id).size()) == live_.at(id).spec.max_tokens) {
      End(id);
    }
  }
  void End(SequenceId id) {
    const Request request = live_.at(id);
    const auto tokens = scheduler_->tokens(id);
    const size_t prompt = request.spec.tokens.size();
    outputs_[id].assign(tokens.begin() + prompt, tokens.end());
    std::vector<TokenId> expected = request.spec.tokens;
    while (expected.size() < tokens.size()) {
      expected.push_back(FakeModel::Next(FramedModel::Literal(request.seen, expected).back()));
    }
    expected.erase(expected.begin(), expected.begin() + prompt);
    EXPECT_EQ(outputs_[id], expected) << "sequence " << id;
    Cancel(id);
  }

  const int32_t depth_;
  ManualClock clock_;
  KvCacheManager cache_;
  ChunkCache chunks_;
  ChunkedParts parts_;
  FramedModel model_;
  std::unique_ptr<Scheduler> scheduler_;
  std::map<SequenceId, Request> live_;
  absl::flat_hash_map<ChunkKey, FramedModel::Values> part_values_;
  std::map<SequenceId, std::vector<TokenId>> outputs_;
  std::deque<InFlight> in_flight_;
  int64_t part_tokens_ = 0;
};

}  // namespace baton
