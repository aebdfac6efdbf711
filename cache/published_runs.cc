#include "cache/published_runs.h"

#include <algorithm>
#include <optional>

#include "common/check.h"

namespace baton {

PublishedRuns::PublishedRuns(int32_t block_size, int32_t blocks, const BlockUnits* units,
                             KvEventBatcher* events)
    : block_size_(block_size),
      runs_per_block_(std::max(1, block_size / kUnitsPerHash)),
      blocks_per_run_(std::max(1, kUnitsPerHash / block_size)),
      units_(units),
      events_(events),
      hashes_(std::make_unique_for_overwrite<Hash128[]>(size_t(blocks) * runs_per_block_)) {}

bool PublishedRuns::Hold(const Hash128& run, bool is_last) {
  return is_last || ++holders_[run] == 1;
}

bool PublishedRuns::LetGo(const Hash128& run, bool is_last) {
  if (is_last) return true;
  const auto it = holders_.find(run);
  CHECK(it != holders_.end());
  if (--it->second > 0) return false;
  holders_.erase(it);
  return true;
}

// The units of run `number` among those that end in run.back().
std::array<CacheUnit, kUnitsPerHash> PublishedRuns::Units(std::span<const BlockId> run,
                                                          int32_t number) const {
  std::array<CacheUnit, kUnitsPerHash> units;
  const int32_t from_each = std::min(block_size_, kUnitsPerHash);
  for (size_t i = 0; i < run.size(); ++i) {
    units_->Read(run[i], number * kUnitsPerHash,
                 std::span(units).subspan(i * from_each, from_each));
  }
  return units;
}

void PublishedRuns::Stored(std::span<const BlockId> run, BlockId before, const Hash128& root) {
  std::optional<Hash128> previous;
  if (before != kNoBlock) previous = Of(before).back();
  const std::span<Hash128> runs = Of(run.back());
  for (size_t i = 0; i < runs.size(); ++i) {
    runs[i] = NextChainedHash(previous ? *previous : root, Units(run, static_cast<int32_t>(i)));
    if (Hold(runs[i], i + 1 == runs.size())) events_->Stored(previous, runs[i]);
    previous = runs[i];
  }
}

void PublishedRuns::Removed(BlockId last) {
  const std::span<const Hash128> runs = Of(last);
  for (size_t i = runs.size(); i-- > 0;) {
    if (LetGo(runs[i], i + 1 == runs.size())) events_->Removed(runs[i]);
  }
}

void PublishedRuns::Cleared() {
  holders_.clear();
  events_->Cleared();
}

void PublishedRuns::Repeat(BlockId last, BlockId before, KvEventBatcher& events) const {
  std::optional<Hash128> previous;
  if (before != kNoBlock) previous = Of(before).back();
  for (const Hash128& run : Of(last)) {
    events.Stored(previous, run);
    previous = run;
  }
}

}  // namespace baton
