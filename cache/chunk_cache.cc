#include "cache/chunk_cache.h"

#include <openssl/sha.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "common/check.h"
#include "common/str_cat.h"

namespace baton {
namespace {

void AppendNumber(std::string& bytes, uint64_t value) {
  std::array<char, sizeof(value)> raw;
  std::memcpy(raw.data(), &value, sizeof(value));
  bytes.append(raw.data(), raw.size());
}

}  // namespace

// ---- keys ---------------------------------------------------------------------------------------

// Every field has a fixed length, and the tokens come last. So different inputs hash different
// bytes.
ChunkKey MakeChunkKey(CacheNamespace cache_namespace, ChunkKind kind,
                      const std::optional<ChunkKey>& before, std::span<const TokenId> tokens) {
  CHECK(!before.has_value() || before->cache_namespace == cache_namespace)
      << "a chunk cannot see a part of another namespace";
  const Hash128 previous = before.has_value() ? before->hash : Hash128();
  std::string bytes;
  bytes.reserve(6 * sizeof(uint64_t) + tokens.size() * sizeof(uint32_t));
  AppendNumber(bytes, static_cast<uint64_t>(kind) << 1 | (before.has_value() ? 1 : 0));
  AppendNumber(bytes, cache_namespace.low());
  AppendNumber(bytes, cache_namespace.high());
  AppendNumber(bytes, previous.low);
  AppendNumber(bytes, previous.high);
  AppendNumber(bytes, tokens.size());
  for (const TokenId token : tokens) {
    const auto value = static_cast<uint32_t>(token);
    std::array<char, sizeof(value)> raw;
    std::memcpy(raw.data(), &value, sizeof(value));
    bytes.append(raw.data(), raw.size());
  }
  std::array<uint8_t, SHA256_DIGEST_LENGTH> digest;
  CHECK(SHA256(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), digest.data()) !=
        nullptr);
  ChunkKey key{.cache_namespace = cache_namespace, .hash = {}};
  std::memcpy(&key.hash.low, digest.data(), sizeof(key.hash.low));
  std::memcpy(&key.hash.high, digest.data() + sizeof(key.hash.low), sizeof(key.hash.high));
  return key;
}

// ---- references ---------------------------------------------------------------------------------

ChunkCache::Reference::Reference(ChunkCache* cache, Entry* entry) : cache_(cache), entry_(entry) {
  if (entry->references++ > 0) return;
  cache_->by_use_.erase(entry->last_use);
  cache_->stats_.referenced_blocks += static_cast<int32_t>(entry->blocks.size());
}

ChunkCache::Reference::Reference(Reference&& other) noexcept
    : cache_(std::exchange(other.cache_, nullptr)), entry_(std::exchange(other.entry_, nullptr)) {}

ChunkCache::Reference& ChunkCache::Reference::operator=(Reference&& other) noexcept {
  if (this == &other) return *this;
  Drop();
  cache_ = std::exchange(other.cache_, nullptr);
  entry_ = std::exchange(other.entry_, nullptr);
  return *this;
}

void ChunkCache::Reference::Drop() {
  if (entry_ == nullptr) return;
  std::exchange(cache_, nullptr)->Unreference(*std::exchange(entry_, nullptr));
}

std::span<const BlockId> ChunkCache::Reference::blocks() const { return entry_->blocks; }
int32_t ChunkCache::Reference::first_block() const { return entry_->first_block; }
int32_t ChunkCache::Reference::tokens() const {
  return static_cast<int32_t>(entry_->tokens.size());
}
int32_t ChunkCache::Reference::position() const { return entry_->position; }

void ChunkCache::Unreference(Entry& entry) {
  CHECK_GT(entry.references, 0);
  if (--entry.references > 0) return;
  stats_.referenced_blocks -= static_cast<int32_t>(entry.blocks.size());
  by_use_.emplace(entry.last_use, &entry);
  if (entry.hidden) return Destroy(entry);
  if (ReachesBehindPool(entry.blocks) || stats_.used_blocks > BudgetBlocks()) {
    EvictForRoom(entry);
  }
}

// ---- find, store --------------------------------------------------------------------------------

ChunkCache::ChunkCache(const ChunkCacheOptions& options, KvCacheManager* cache)
    : options_(options), cache_(cache) {
  CHECK(options.share >= 0 && options.share <= 1) << "share " << options.share;
  CHECK_GE(options.max_entries, 1);
  CHECK(options.sleep_after_us >= 0 && options.sleep_uses >= 0);
}

ChunkCache::~ChunkCache() {
  demote_ = nullptr;
  Clear();
  CHECK(owned_.empty()) << owned_.size() << " chunks are still referenced";
}

int32_t ChunkCache::BudgetBlocks() const {
  if (!cache_->options().paged) return 0;
  return static_cast<int32_t>(options_.share * cache_->num_blocks());
}

bool ChunkCache::ReachesBehindPool(std::span<const BlockId> blocks) const {
  return std::any_of(blocks.begin(), blocks.end(),
                     [&](BlockId block) { return block.value() >= cache_->num_blocks(); });
}

void ChunkCache::Use(Entry& entry) {
  if (!entry.recent_uses.empty()) {
    entry.recent_uses[entry.uses % entry.recent_uses.size()] = NowUs();
  }
  ++entry.uses;
  if (entry.references == 0) by_use_.erase(entry.last_use);
  entry.last_use = ++uses_;
  entry.last_use_us = NowUs();
  if (entry.references == 0) by_use_.emplace(entry.last_use, &entry);
}

ChunkCache::Entry* ChunkCache::Lookup(const ChunkKey& key, std::span<const TokenId> tokens) const {
  const auto it = entries_.find(key);
  if (it == entries_.end()) return nullptr;
  return std::equal(tokens.begin(), tokens.end(), it->second->tokens.begin(),
                    it->second->tokens.end())
             ? it->second
             : nullptr;
}

ChunkCache::Reference ChunkCache::Find(const ChunkKey& key, std::span<const TokenId> tokens) {
  ++stats_.lookups;
  Entry* const entry = Lookup(key, tokens);
  if (entry == nullptr) return Reference();
  ++stats_.hits;
  Use(*entry);
  return Reference(this, entry);
}

std::optional<ChunkCache::Peeked> ChunkCache::Peek(const ChunkKey& key,
                                                   std::span<const TokenId> tokens) const {
  const Entry* const entry = Lookup(key, tokens);
  if (entry == nullptr) return std::nullopt;
  return Peeked{.first_block = entry->first_block,
                .blocks = static_cast<int32_t>(entry->blocks.size()),
                .referenced = entry->references > 0,
                .ids = entry->blocks};
}

void ChunkCache::Touch(const ChunkKey& key, std::span<const TokenId> tokens) {
  if (Entry* const entry = Lookup(key, tokens); entry != nullptr) Use(*entry);
}

ChunkCache::Reference ChunkCache::Store(const Part& part) {
  CHECK(!part.blocks.empty());
  const auto blocks = static_cast<int32_t>(part.blocks.size());
  if (entries_.contains(part.key) || ReachesBehindPool(part.blocks) || !MakeRoom(blocks)) {
    ++stats_.bypasses;
    return Reference();
  }
  cache_->HoldForChunk(part.blocks);
  auto owned = std::make_unique<Entry>();
  Entry* const entry = owned.get();
  entry->key = part.key;
  entry->tokens.assign(part.tokens.begin(), part.tokens.end());
  entry->blocks.assign(part.blocks.begin(), part.blocks.end());
  entry->first_block = part.first_block;
  entry->position = part.position;
  entry->sleeps = part.sleeps;
  if (part.sleeps && demote_ != nullptr) entry->recent_uses.resize(options_.sleep_uses);
  entry->last_use = ++uses_;
  entry->stored_us = entry->last_use_us = NowUs();
  owned_.emplace(entry, std::move(owned));
  entries_.emplace(entry->key, entry);
  by_use_.emplace(entry->last_use, entry);
  stats_.used_blocks += blocks;
  cache_->ChunkStored(entry->key.hash);
  return Reference(this, entry);
}

// ---- eviction -----------------------------------------------------------------------------------

// Returns false, and evicts nothing, if there is no room for that many blocks in one more entry.
bool ChunkCache::MakeRoom(int32_t blocks) {
  const int32_t budget = BudgetBlocks();
  const auto full = [&] { return static_cast<int32_t>(owned_.size()) >= options_.max_entries; };
  if (stats_.referenced_blocks + blocks > budget || (full() && by_use_.empty())) return false;
  while (stats_.used_blocks + blocks > budget || full()) EvictForRoom(*by_use_.begin()->second);
  return true;
}

bool ChunkCache::Demote(const Entry& entry) {
  if (demote_ == nullptr || !entry.sleeps || entry.hidden) return false;
  CHECK_EQ(entry.first_block, 0) << "a chunk begins at its first block";
  return demote_({.key = entry.key,
                  .tokens = entry.tokens,
                  .position = entry.position,
                  .blocks = entry.blocks,
                  .uses = entry.uses,
                  .stored_us = entry.stored_us,
                  .last_use_us = entry.last_use_us});
}

// REQUIRES: the entry has no reference.
void ChunkCache::EvictForRoom(Entry& entry) {
  ++stats_.evictions;
  Demote(entry);
  Destroy(entry);
}

// A cold entry has fewer than `sleep_uses` uses in the last `sleep_after_us`.
bool ChunkCache::IsCold(const Entry& entry, int64_t now_us) const {
  const int64_t since_us = now_us - options_.sleep_after_us;
  if (options_.sleep_uses == 0 || entry.stored_us > since_us) return false;
  if (entry.uses < options_.sleep_uses || entry.recent_uses.empty()) return true;
  // The oldest of the last `sleep_uses` uses.
  return entry.recent_uses[entry.uses % options_.sleep_uses] <= since_us;
}

void ChunkCache::SleepCold() {
  const int64_t now_us = NowUs();
  if (demote_ == nullptr || now_us < next_sleep_round_us_) return;
  next_sleep_round_us_ = now_us + kSleepRoundUs;
  std::vector<Entry*> cold;
  for (const auto& [last_use, entry] : by_use_) {
    if (entry->sleeps && IsCold(*entry, now_us)) cold.push_back(entry);
  }
  for (Entry* const entry : cold) {
    if (!Demote(*entry)) return;
    Destroy(*entry);
  }
}

int32_t ChunkCache::EvictOne() {
  if (by_use_.empty()) return 0;
  Entry& entry = *by_use_.begin()->second;
  const auto blocks = static_cast<int32_t>(entry.blocks.size());
  ++stats_.evictions;
  Destroy(entry);
  return blocks;
}

void ChunkCache::Hide(Entry& entry) {
  entries_.erase(entry.key);
  cache_->ChunkRemoved(entry.key.hash);
  entry.hidden = true;
}

// REQUIRES: the entry has no reference.
void ChunkCache::Destroy(Entry& entry) {
  if (!entry.hidden) Hide(entry);
  by_use_.erase(entry.last_use);
  cache_->ReleaseChunkHold(entry.blocks);
  stats_.used_blocks -= static_cast<int32_t>(entry.blocks.size());
  owned_.erase(&entry);
}

int32_t ChunkCache::Clear(std::optional<CacheNamespace> only) {
  std::vector<Entry*> found;
  for (const auto& [key, entry] : entries_) {
    if (!only.has_value() || key.cache_namespace == *only) found.push_back(entry);
  }
  // The order decides which blocks are handed out first, so it must not depend on hashes.
  std::sort(found.begin(), found.end(),
            [](const Entry* a, const Entry* b) { return a->last_use < b->last_use; });
  int32_t released = 0;
  for (Entry* const entry : found) {
    if (entry->references > 0) {
      Hide(*entry);
      continue;
    }
    released += static_cast<int32_t>(entry->blocks.size());
    Destroy(*entry);
  }
  return released;
}

void ChunkCache::PoolResized() {
  std::vector<Entry*> behind;
  for (const auto& [key, entry] : entries_) {
    if (ReachesBehindPool(entry->blocks)) behind.push_back(entry);
  }
  std::sort(behind.begin(), behind.end(),
            [](const Entry* a, const Entry* b) { return a->last_use < b->last_use; });
  for (Entry* const entry : behind) {
    if (entry->references == 0) {
      EvictForRoom(*entry);
      continue;
    }
    ++stats_.evictions;
    Hide(*entry);
  }
  while (stats_.used_blocks > BudgetBlocks() && !by_use_.empty()) {
    EvictForRoom(*by_use_.begin()->second);
  }
}

// ---- statistics and checks ----------------------------------------------------------------------

ChunkCacheStats ChunkCache::Stats() const {
  ChunkCacheStats stats = stats_;
  stats.budget_blocks = BudgetBlocks();
  stats.entries = static_cast<int32_t>(entries_.size());
  stats.max_entries = options_.max_entries;
  return stats;
}

std::vector<ChunkCache::EntryInfo> ChunkCache::Entries() const {
  std::vector<const Entry*> entries;
  for (const auto& [key, entry] : entries_) entries.push_back(entry);
  std::sort(entries.begin(), entries.end(),
            [](const Entry* a, const Entry* b) { return a->last_use < b->last_use; });
  const int64_t now_us = NowUs();
  std::vector<EntryInfo> infos;
  for (const Entry* const entry : entries) {
    infos.push_back({.key = entry->key,
                     .tokens = static_cast<int32_t>(entry->tokens.size()),
                     .blocks = static_cast<int32_t>(entry->blocks.size()),
                     .position = entry->position,
                     .references = entry->references,
                     .uses = entry->uses,
                     .age_us = now_us - entry->stored_us,
                     .idle_us = now_us - entry->last_use_us});
  }
  return infos;
}

std::vector<BlockId> ChunkCache::HeldBlocks() const {
  std::vector<BlockId> blocks;
  for (const auto& [entry, owned] : owned_) {
    blocks.insert(blocks.end(), entry->blocks.begin(), entry->blocks.end());
  }
  return blocks;
}

absl::Status ChunkCache::CheckInvariants() const {
  int32_t used = 0;
  int32_t referenced = 0;
  size_t visible = 0;
  size_t unreferenced = 0;
  for (const auto& [entry, owned] : owned_) {
    const auto blocks = static_cast<int32_t>(entry->blocks.size());
    used += blocks;
    const auto by_use = by_use_.find(entry->last_use);
    const bool in_line = by_use != by_use_.end() && by_use->second == entry;
    if (in_line != (entry->references == 0)) {
      return absl::InternalError(StrCat("an entry with ", entry->references, " references is ",
                                        in_line ? "" : "not ", "in the line for eviction"));
    }
    if (entry->references > 0) {
      referenced += blocks;
    } else {
      ++unreferenced;
      if (entry->hidden) return absl::InternalError("a hidden entry has no reference");
    }
    if (entry->hidden) continue;
    ++visible;
    const auto it = entries_.find(entry->key);
    if (it == entries_.end() || it->second != entry) {
      return absl::InternalError("an entry is not found under its key");
    }
  }
  if (used != stats_.used_blocks || referenced != stats_.referenced_blocks) {
    return absl::InternalError(
        StrCat("counts ", stats_.used_blocks, " used and ", stats_.referenced_blocks,
               " referenced blocks; recount finds ", used, " and ", referenced));
  }
  if (visible != entries_.size() || unreferenced != by_use_.size()) {
    return absl::InternalError(StrCat(entries_.size(), " keys and ", by_use_.size(),
                                      " entries to evict; recount finds ", visible, " and ",
                                      unreferenced));
  }
  return cache_->CheckChunkHolds(HeldBlocks());
}

}  // namespace baton
