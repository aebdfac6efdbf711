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
  // KV that comes from a peer.
  void Land(std::span<const BlockId> table, const Values& values, int32_t count) {
    for (int32_t slot = 0; slot < count; ++slot) At(table, slot) = values[slot];
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
  // Parts with a sequence in the scheduler.
  std::vector<SequenceId> InScheduler() const {
    std::vector<SequenceId> ids;
    for (const auto& [id, part] : by_id_) ids.push_back(id);
    return ids;
  }
  const ChunkKey& KeyOf(SequenceId id) const { return by_id_.at(id)->spec.key; }
  bool AllDone(SequenceId main) const {
    return admitted_.contains(main) && AllDone(*admitted_.at(main));
  }
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

}  // namespace baton
