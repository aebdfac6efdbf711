// Chunks of PromptParts that sleep in host memory.
#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "engine/live_part.h"
#include "engine/prompt_parts.h"

namespace baton {

// A chunk that falls asleep still has its blocks, so it is stored again.
ChunkCache::Reference PromptParts::FindStored(const ChunkLayout::Part& part) {
  ChunkCache::Reference stored = chunks_.Find(part.key, part.tokens);
  if (stored || tier_ == nullptr) return stored;
  const bool back = tier_->TakeBack(
      part.key, part.tokens, [&](int32_t position, std::span<const BlockId> blocks) {
        stored = chunks_.Store(
            {.key = part.key, .tokens = part.tokens, .position = position, .blocks = blocks});
        return static_cast<bool>(stored);
      });
  awakened_ += back ? 1 : 0;
  return stored;
}

bool PromptParts::Sleeps(const ChunkLayout::Part& part) const {
  return tier_ != nullptr && tier_->Has(part.key, part.tokens);
}

void PromptParts::OnWoken(const ChunkTier::Woken& woken) {
  const auto found = by_id_.find(woken.part);
  if (found == by_id_.end()) return;
  LivePart& part = *found->second;
  part.wakes = woken.whole;
  scheduler_->PartArrived(woken.part, woken.whole ? part.length : 0);
  if (!woken.whole) return;
  ++awakened_;
  Done(part);
}

// A chunk is a hit if all its pieces are.
void PromptParts::CountHits(Main& main) {
  main.costs.ledger.hits = static_cast<int32_t>(std::count_if(
      main.layout->chunks.begin(), main.layout->chunks.end(),
      [&](const std::vector<int32_t>& pieces) {
        return std::all_of(pieces.begin(), pieces.end(), [&](int32_t i) { return main.hits[i]; });
      }));
}

// A woken part is a hit of every request that waited for it.
void PromptParts::CountWoken(const LivePart& part, Main& main) {
  for (size_t i = 0; i < main.parts.size(); ++i) {
    if (main.parts[i].get() == &part) main.hits[i] = true;
  }
  CountHits(main);
}

int32_t PromptParts::Clear(std::optional<CacheNamespace> only) {
  if (tier_ != nullptr) tier_->Clear(only);
  return chunks_.Clear(only);
}

ChunkCacheStats PromptParts::Stats() const {
  ChunkCacheStats stats = chunks_.Stats();
  stats.hits += awakened_;
  return stats;
}

SleepingChunkStats PromptParts::SleepingStats() const {
  return tier_ == nullptr ? SleepingChunkStats() : tier_->Stats();
}

std::vector<ChunkCache::EntryInfo> PromptParts::Entries() const {
  std::vector<ChunkCache::EntryInfo> entries;
  if (tier_ != nullptr) entries = tier_->Entries();
  const std::vector<ChunkCache::EntryInfo> awake = chunks_.Entries();
  entries.insert(entries.end(), awake.begin(), awake.end());
  return entries;
}

}  // namespace baton
