// Chunked prompts on a scheduler, a cache and a model that reads KV through frames. ChunkedParts
// does what the engine does with parts, in the simplest way.
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
#include "tests/scheduler/fake_model.h"

namespace baton {

struct ChunkedRequest {
  std::vector<TokenId> system;  // may be empty
  std::vector<std::vector<TokenId>> chunks;
  std::vector<TokenId> question;
  bool alone = false;
  int32_t piece_tokens = 1000;  // a chunk is split into pieces of this length
};

// One part of a request. `sees` are parts of the same request, by number.
struct PartOfRequest {
  ChunkKey key;
  bool system = false;
  std::vector<TokenId> tokens;
  std::vector<size_t> sees;
};

inline std::vector<PartOfRequest> PartsOf(const ChunkedRequest& request, CacheNamespace space) {
  std::vector<PartOfRequest> parts;
  if (!request.system.empty()) {
    parts.push_back({.key = MakeChunkKey(space, ChunkKind::kSystem, {}, request.system),
                     .system = true,
                     .tokens = request.system,
                     .sees = {}});
  }
  const size_t systems = request.alone ? 0 : parts.size();
  for (const std::vector<TokenId>& chunk : request.chunks) {
    std::vector<size_t> sees(systems);
    if (systems > 0) sees[0] = 0;
    std::optional<ChunkKey> before;
    if (systems > 0) before = parts[0].key;
    ChunkKind kind = ChunkKind::kChunk;
    for (size_t begin = 0; begin < chunk.size(); begin += request.piece_tokens) {
      const size_t end = std::min(chunk.size(), begin + request.piece_tokens);
      std::vector<TokenId> tokens(chunk.begin() + begin, chunk.begin() + end);
      before = MakeChunkKey(space, kind, before, tokens);
      parts.push_back({.key = *before, .tokens = std::move(tokens), .sees = sees});
      sees.push_back(parts.size() - 1);
      kind = ChunkKind::kPiece;
    }
  }
  return parts;
}

// KV that depends on everything a slot sees, read through block tables.
class FramedModel {
 public:
  explicit FramedModel(const KvCacheManager* cache)
      : block_size_(cache->options().block_size),
        slots_(size_t(cache->max_blocks()) * cache->options().block_size) {}

  using Values = std::vector<uint64_t>;
  static uint64_t Mix(uint64_t seed, uint64_t value) {
    return (seed ^ value) * 0xD1342543DE82EF95u;
  }
  // The values of a part's slots, computed without a cache. `seen` are the values that it sees.
  static Values Literal(const Values& seen, std::span<const TokenId> tokens) {
    uint64_t seed = 1;
    for (const uint64_t value : seen) seed = Mix(seed, value);
    Values values;
    uint64_t chain = 0;
    for (const TokenId token : tokens) {
      values.push_back(chain = FakeModel::Chain(chain + seed, token));
    }
    return values;
  }
  // Computes the chunk through a table of the frame's blocks and the sequence's own.
  TokenId Compute(std::span<const BlockId> table, const SequenceFrame* frame,
                  std::span<const TokenId> tokens, int32_t begin) {
    uint64_t seed = 1;
    int32_t first = 0;
    if (frame != nullptr) {
      first = frame->slots(block_size_);
      for (const FrameRun& run : frame->runs) {
        for (int32_t i = run.begin; i < run.end; ++i) seed = Mix(seed, At(table, i));
      }
    }
    uint64_t chain = begin == 0 ? 0 : At(table, first + begin - 1);
    for (size_t i = 0; i < tokens.size(); ++i) {
      chain = FakeModel::Chain(chain + seed, tokens[i]);
      At(table, first + begin + static_cast<int32_t>(i)) = chain;
    }
    return FakeModel::Next(chain);
  }
  void Copy(const BlockCopy& copy) {
    for (int32_t i = 0; i < copy.tokens; ++i) {
      slots_[size_t(copy.to.value()) * block_size_ + i] =
          slots_[size_t(copy.from.value()) * block_size_ + i];
    }
  }

 private:
  uint64_t& At(std::span<const BlockId> table, int32_t slot) {
    return slots_[size_t(table[slot / block_size_].value()) * block_size_ + slot % block_size_];
  }
  int32_t block_size_;
  std::vector<uint64_t> slots_;
};

class ChunkedParts : public PartSource {
 public:
  static constexpr CacheNamespace kPartSpace{1};

  ChunkedParts(KvCacheManager* cache, ChunkCache* chunks) : cache_(*cache), chunks_(*chunks) {}
  void set_scheduler(Scheduler* scheduler) { scheduler_ = scheduler; }

  void Add(SequenceId main, const ChunkedRequest& request) {
    requests_[main] = PartsOf(request, kPartSpace);
  }
  int32_t BlocksOfParts(SequenceId main) const {
    int32_t blocks = 0;
    for (const PartOfRequest& part : requests_.at(main)) {
      blocks += cache_.BlocksFor(static_cast<int32_t>(part.tokens.size()));
    }
    return blocks;
  }
  // Returns the main sequences that are ready now.
  std::vector<SequenceId> Committed(SequenceId id) {
    const auto it = by_id_.find(id);
    if (it == by_id_.end()) return {};
    Part& part = *it->second;
    if (cache_.committed(id) < static_cast<int32_t>(part.spec.tokens.size())) return {};
    ++computed_;
    part.done = true;
    part.first_block = part.spec.system ? cache_.shared_tokens(id) / block_size() : 0;
    const auto rest = std::span(part.blocks).subspan(part.first_block);
    if (!rest.empty()) {
      part.reference = chunks_.Store({.key = part.spec.key,
                                      .tokens = part.spec.tokens,
                                      .first_block = part.first_block,
                                      .blocks = rest});
    }
    if (part.reference && !part.spec.system) {
      by_id_.erase(it);
      part.in_scheduler = false;
      scheduler_->Finish(id, /*keep_cached=*/false);
    }
    std::vector<SequenceId> ready;
    for (const auto& [main, use] : admitted_) {
      if (AllDone(*use)) ready.push_back(main);
    }
    return ready;
  }
  // The main sequence has ended.
  void Ended(SequenceId main) {
    admitted_.erase(main);
    requests_.erase(main);
  }
  void Forked(SequenceId parent, SequenceId child) { requests_[child] = requests_.at(parent); }
  bool RefersToParts(SequenceId main) const { return admitted_.contains(main); }
  bool empty() const { return parts_.empty() && admitted_.empty() && by_id_.empty(); }
  bool IsPart(SequenceId id) const { return by_id_.contains(id); }
  int64_t computed() const { return computed_; }
  int64_t hits() const { return hits_; }
  void ExpectPartsHaveUsers() const {
    for (const auto& [key, part] : parts_) EXPECT_GT(part->users, 0);
  }

  // ---- PartSource
  int32_t BlocksForParts(SequenceId main) const override {
    int32_t blocks = 0;
    std::set<std::pair<uint64_t, uint64_t>> seen;
    for (const PartOfRequest& part : requests_.at(main)) {
      if (!seen.insert({part.key.hash.low, part.key.hash.high}).second) continue;
      if (parts_.contains(part.key)) continue;
      if (part.system) {
        const std::optional<int32_t> whole = CachedSystemBlocks(part);
        const std::vector<CacheUnit> units = UnitsFromTokens(part.tokens);
        const auto length = static_cast<int32_t>(units.size());
        blocks += whole.has_value()
                      ? cache_.PeekBlocks(kPartSpace, Whole(units, *whole)).evictable_blocks
                      : cache_.BlocksToAdmit(kPartSpace, units, length).full();
      } else if (!chunks_.Peek(part.key, part.tokens).has_value()) {
        blocks += cache_.BlocksFor(static_cast<int32_t>(part.tokens.size()));
      }
    }
    return blocks;
  }
  Admission Admit(SequenceId main) override {
    EXPECT_FALSE(admitted_.contains(main));
    auto use = std::make_shared<Use>(this);
    Admission admission;
    created_.clear();
    for (const PartOfRequest& spec : requests_.at(main)) {
      std::unique_ptr<Part>& part = parts_[spec.key];
      if (part == nullptr) {
        part = std::make_unique<Part>();
        part->spec = spec;
        if (FindCached(*part)) {
          ++hits_;
        } else {
          part->id = SequenceId(next_id_++);
          part->in_scheduler = true;
          by_id_[part->id] = part.get();
          created_.push_back(part->id);
          for (const size_t seen : spec.sees) part->sees.push_back(use->parts[seen]->spec.key);
          admission.missing.push_back({.id = part->id,
                                       .tokens = spec.tokens,
                                       .shares_prefix = spec.system,
                                       .cache_namespace = kPartSpace,
                                       .after = IdsOf(*part)});
        }
      } else if (!part->done) {
        admission.waits_for.push_back(part->id);
      }
      ++part->users;
      use->parts.push_back(part.get());
    }
    admitted_[main] = std::move(use);
    return admission;
  }
  void Abandon(SequenceId main) override {
    for (const SequenceId id : created_) {
      by_id_.at(id)->in_scheduler = false;
      by_id_.erase(id);
    }
    admitted_.erase(main);
  }
  std::shared_ptr<const SequenceFrame> FrameOfPart(SequenceId id) override {
    Part& part = *by_id_.at(id);
    const auto table = cache_.BlockTable(id);
    part.blocks.assign(table.begin(), table.end());
    if (part.sees.empty()) return nullptr;
    auto frame = std::make_shared<SequenceFrame>();
    for (const ChunkKey& key : part.sees) AddPart(*parts_.at(key), *frame);
    return frame;
  }
  std::shared_ptr<const SequenceFrame> FrameIfReady(SequenceId main) override {
    const auto it = admitted_.find(main);
    if (!AllDone(*it->second)) return nullptr;
    auto frame = std::make_shared<SequenceFrame>();
    for (const Part* const part : it->second->parts) AddPart(*part, *frame);
    frame->holds = std::move(it->second);
    admitted_.erase(it);
    return frame;
  }
  int32_t evictable_blocks() const override { return chunks_.evictable_blocks(); }
  bool EvictOne(SequenceId wanted_by) override {
    const auto it = requests_.find(wanted_by);
    if (it != requests_.end()) {
      for (const PartOfRequest& part : it->second) chunks_.Touch(part.key, part.tokens);
    }
    return chunks_.EvictOne() > 0;
  }

 private:
  struct Part {
    PartOfRequest spec;
    SequenceId id;
    bool in_scheduler = false;
    bool in_cache = false;  // a sequence of KvCacheManager alone
    bool done = false;
    int32_t users = 0;
    int32_t first_block = 0;
    std::vector<ChunkKey> sees;
    std::vector<BlockId> blocks;
    ChunkCache::Reference reference;
  };
  // What one admitted main sequence uses.
  struct Use {
    explicit Use(ChunkedParts* source) : source(source) {}
    ~Use() {
      for (size_t i = parts.size(); i-- > 0;) source->Drop(*parts[i]);
    }
    ChunkedParts* source;
    std::vector<Part*> parts;
  };

  int32_t block_size() const { return cache_.options().block_size; }
  std::span<const CacheUnit> Whole(std::span<const CacheUnit> units, int32_t blocks) const {
    return units.first(size_t(blocks) * block_size());
  }
  bool AllDone(const Use& use) const {
    return std::all_of(use.parts.begin(), use.parts.end(), [](const Part* p) { return p->done; });
  }
  std::vector<SequenceId> IdsOf(const Part& part) const {
    std::vector<SequenceId> ids;
    for (const ChunkKey& key : part.sees) {
      if (!parts_.at(key)->done) ids.push_back(parts_.at(key)->id);
    }
    return ids;
  }
  void AddPart(const Part& part, SequenceFrame& frame) const {
    const int32_t begin = frame.slots(block_size());
    frame.blocks.insert(frame.blocks.end(), part.blocks.begin(), part.blocks.end());
    frame.runs.push_back(
        {.begin = begin, .end = begin + static_cast<int32_t>(part.spec.tokens.size())});
  }
  // Leading blocks of a cached system part that the tree must have; nullopt: not cached.
  std::optional<int32_t> CachedSystemBlocks(const PartOfRequest& part) const {
    const std::vector<CacheUnit> units = UnitsFromTokens(part.tokens);
    const auto rest = chunks_.Peek(part.key, part.tokens);
    const auto length = static_cast<int32_t>(units.size());
    if (!rest.has_value() && length % block_size() != 0) return std::nullopt;
    const int32_t blocks = rest.has_value() ? rest->first_block : length / block_size();
    const RadixPeek peek = cache_.PeekBlocks(kPartSpace, Whole(units, blocks));
    return peek.blocks == blocks ? std::optional(blocks) : std::nullopt;
  }
  bool FindCached(Part& part) {
    if (part.spec.system) {
      const std::optional<int32_t> blocks = CachedSystemBlocks(part.spec);
      if (!blocks.has_value()) return false;
      part.id = SequenceId(next_id_++);
      const std::vector<CacheUnit> units = UnitsFromTokens(part.spec.tokens);
      if (!cache_.BeginCached(part.id, kPartSpace, Whole(units, *blocks))) return false;
      part.in_cache = true;
      const auto table = cache_.BlockTable(part.id);
      part.blocks.assign(table.begin(), table.end());
    }
    part.reference = chunks_.Find(part.spec.key, part.spec.tokens);
    if (part.reference) {
      const auto blocks = part.reference.blocks();
      part.blocks.insert(part.blocks.end(), blocks.begin(), blocks.end());
    }
    part.done = part.spec.system || part.reference;
    return part.done;
  }
  void Drop(Part& part) {
    if (--part.users > 0) return;
    if (part.in_scheduler) {
      by_id_.erase(part.id);
      scheduler_->Finish(part.id, /*keep_cached=*/part.spec.system);
    }
    if (part.in_cache) cache_.Release(part.id, /*keep=*/false);
    parts_.erase(part.spec.key);
  }

  KvCacheManager& cache_;
  ChunkCache& chunks_;
  Scheduler* scheduler_ = nullptr;
  std::map<SequenceId, std::vector<PartOfRequest>> requests_;
  absl::flat_hash_map<ChunkKey, std::unique_ptr<Part>> parts_;
  std::map<SequenceId, Part*> by_id_;                    // those in the scheduler
  std::map<SequenceId, std::shared_ptr<Use>> admitted_;  // main sequences without their frame
  std::vector<SequenceId> created_;
  uint64_t next_id_ = 1'000'000;
  int64_t computed_ = 0;
  int64_t hits_ = 0;
};

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
                          int32_t priority = 0, int32_t forks = 0) {
    const SequenceId main(id);
    parts_.Add(main, request);
    SequenceSpec spec{.id = main,
                      .tokens = request.question,
                      .cache_namespace = Derived(request),
                      .max_tokens = static_cast<int32_t>(request.question.size()) + generate,
                      .priority = priority,
                      .forks = forks,
                      .part_blocks = parts_.BlocksOfParts(main)};
    const absl::Status status = scheduler_->Add(spec);
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
      seen.insert(seen.end(), values.back().begin(), values.back().end());
    }
    live_[main] = {.spec = spec, .seen = std::move(seen), .chunked = true};
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
  // All hand-offs failed: their sequences compute their prompts.
  void HandOffsFail() {
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
      for (const SequenceId main : parts_.Committed(chunk.id)) scheduler_->PartsReady(main);
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
  };
  struct InFlight {
    SchedulerOutput plan;
    std::vector<std::vector<BlockId>> tables;
    std::vector<std::shared_ptr<const SequenceFrame>> frames;
    std::vector<std::vector<TokenId>> tokens;
  };

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
  std::map<SequenceId, std::vector<TokenId>> outputs_;
  std::deque<InFlight> in_flight_;
  int64_t part_tokens_ = 0;
};

}  // namespace baton
