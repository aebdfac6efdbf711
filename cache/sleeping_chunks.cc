#include "cache/sleeping_chunks.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/str_cat.h"

namespace baton {

SleepingChunks::~SleepingChunks() { Clear(); }

bool SleepingChunks::Reserve(int64_t bytes, int64_t last_use_us) {
  int64_t lacking = used() + bytes - limit_bytes_;
  std::vector<ChunkKey> evicted;
  for (auto it = by_use_.begin(); it != by_use_.end() && lacking > 0; ++it) {
    if (it->first.first > last_use_us) break;
    const Entry& entry = entries_.at(it->second);
    if (IsPinned(entry)) continue;
    lacking -= entry.bytes;
    evicted.push_back(it->second);
  }
  if (lacking > 0) return false;
  for (const ChunkKey& key : evicted) Remove(key);
  stats_.dropped += static_cast<int64_t>(evicted.size());
  reserved_ += bytes;
  return true;
}

void SleepingChunks::Add(Sleeper sleeper, int64_t reserved) {
  Remove(sleeper.key);
  Unreserve(reserved);
  const Use last_use(sleeper.last_use_us, ++uses_);
  Entry entry{.sleeper = std::move(sleeper), .bytes = 0, .last_use = last_use};
  entry.bytes = entry.sleeper.kv->host_bytes();
  CHECK_LE(entry.bytes, reserved);
  bytes_ += entry.bytes;
  ++stats_.sleeps;
  const ChunkKey key = entry.sleeper.key;
  by_use_.emplace(entry.last_use, key);
  entries_.emplace(key, std::move(entry));
  cache_->ChunkStored(key.hash, CacheTier::kHost);
}

const SleepingChunks::Sleeper* SleepingChunks::Find(const ChunkKey& key,
                                                    std::span<const TokenId> tokens) const {
  const auto it = entries_.find(key);
  if (it == entries_.end()) return nullptr;
  const Sleeper& sleeper = it->second.sleeper;
  return std::equal(tokens.begin(), tokens.end(), sleeper.tokens.begin(), sleeper.tokens.end())
             ? &sleeper
             : nullptr;
}

std::shared_ptr<const PackedKv> SleepingChunks::Pin(const ChunkKey& key, int64_t now_us) {
  Entry& entry = entries_.at(key);
  by_use_.erase(entry.last_use);
  entry.last_use = Use(now_us, ++uses_);
  by_use_.emplace(entry.last_use, key);
  entry.sleeper.last_use_us = now_us;
  Pinned& pinned = pinned_[entry.sleeper.kv.get()];
  ++pinned.pins;
  pinned.bytes = entry.bytes;
  return entry.sleeper.kv;
}

void SleepingChunks::Unpin(const std::shared_ptr<const PackedKv>& kv, bool woken) {
  const auto it = pinned_.find(kv.get());
  CHECK(it != pinned_.end()) << "the KV is not pinned";
  stats_.wakes += woken ? 1 : 0;
  if (--it->second.pins > 0) return;
  if (it->second.forgotten) forgotten_bytes_ -= it->second.bytes;
  pinned_.erase(it);
}

void SleepingChunks::Damaged(const ChunkKey& key, const std::shared_ptr<const PackedKv>& kv) {
  ++stats_.damaged;
  const auto it = entries_.find(key);
  if (it != entries_.end() && it->second.sleeper.kv == kv) Remove(key);
}

void SleepingChunks::Forget(const ChunkKey& key) { Remove(key); }

void SleepingChunks::Remove(const ChunkKey& key) {
  const auto it = entries_.find(key);
  if (it == entries_.end()) return;
  const Entry& entry = it->second;
  bytes_ -= entry.bytes;
  if (const auto pinned = pinned_.find(entry.sleeper.kv.get()); pinned != pinned_.end()) {
    pinned->second.forgotten = true;
    forgotten_bytes_ += entry.bytes;
  }
  by_use_.erase(entry.last_use);
  const Hash128 hash = key.hash;
  entries_.erase(it);
  cache_->ChunkRemoved(hash, CacheTier::kHost);
}

void SleepingChunks::Clear(std::optional<CacheNamespace> only) {
  std::vector<ChunkKey> found;
  for (const auto& [last_use, key] : by_use_) {
    if (!only.has_value() || key.cache_namespace == *only) found.push_back(key);
  }
  for (const ChunkKey& key : found) Remove(key);
}

SleepingChunkStats SleepingChunks::Stats() const {
  SleepingChunkStats stats = stats_;
  stats.entries = static_cast<int32_t>(entries_.size());
  stats.bytes = used();
  stats.limit_bytes = limit_bytes_;
  return stats;
}

std::vector<ChunkCache::EntryInfo> SleepingChunks::Entries(int64_t now_us) const {
  std::vector<ChunkCache::EntryInfo> infos;
  for (const auto& [last_use, key] : by_use_) {
    const Entry& entry = entries_.at(key);
    const Sleeper& sleeper = entry.sleeper;
    infos.push_back({.key = key,
                     .tokens = static_cast<int32_t>(sleeper.tokens.size()),
                     .blocks = 0,
                     .position = sleeper.position,
                     .references = 0,
                     .uses = sleeper.uses,
                     .age_us = now_us - sleeper.stored_us,
                     .idle_us = now_us - sleeper.last_use_us,
                     .tier = CacheTier::kHost,
                     .host_bytes = entry.bytes});
  }
  return infos;
}

absl::Status SleepingChunks::CheckInvariants() const {
  int64_t bytes = 0;
  for (const auto& [key, entry] : entries_) {
    bytes += entry.bytes;
    const auto by_use = by_use_.find(entry.last_use);
    if (by_use == by_use_.end() || by_use->second != key) {
      return absl::InternalError("a sleeping chunk is not in the line for eviction");
    }
  }
  if (bytes != bytes_ || by_use_.size() != entries_.size()) {
    return absl::InternalError(StrCat(entries_.size(), " sleeping chunks with ", bytes,
                                      " bytes; counted are ", by_use_.size(), " with ", bytes_));
  }
  if (reserved_ < 0 || forgotten_bytes_ < 0 || used() > limit_bytes_) {
    return absl::InternalError(StrCat("sleeping chunks take ", used(), " bytes, ", reserved_,
                                      " of them reserved; the limit is ", limit_bytes_));
  }
  return absl::OkStatus();
}

}  // namespace baton
