#include "cache/index/holder_table.h"

#include "common/check.h"

namespace baton {

HolderTable::HolderTable() : live_(kMaxHolders / 8), owners_(kMaxHolders * 8) {}

HolderTable::Owner HolderTable::owner(HolderId holder) const {
  const uint64_t word = LoadWord(owners_.words() + holder);
  return {.worker = IndexedWorker(static_cast<uint32_t>(word >> 8)),
          .tier = static_cast<CacheTier>(word & 255)};
}

std::optional<HolderId> HolderTable::Find(IndexedWorker worker, CacheTier tier) const {
  const auto it = numbers_.find(worker);
  if (it == numbers_.end()) return std::nullopt;
  const int32_t number = it->second[static_cast<size_t>(tier)];
  return number < 0 ? std::nullopt : std::optional(static_cast<HolderId>(number));
}

std::optional<HolderId> HolderTable::FindOrAdd(IndexedWorker worker, CacheTier tier) {
  if (const auto found = Find(worker, tier)) return found;
  HolderId number;
  if (!free_.empty()) {
    number = free_.back();
    free_.pop_back();
  } else if (given_ < kMaxHolders) {
    number = static_cast<HolderId>(given_++);
  } else {
    return std::nullopt;
  }
  Numbers& numbers = numbers_.try_emplace(worker, Numbers{-1, -1, -1}).first->second;
  numbers[static_cast<size_t>(tier)] = number;
  // Increment first, so that a reader that sees the new owner also sees the change.
  assignments_.fetch_add(1, std::memory_order_acq_rel);
  StoreWord(owners_.words() + number, uint64_t{worker.value()} << 8 | static_cast<uint64_t>(tier));
  uint64_t* const live = live_.words() + number / 64;
  StoreWord(live, *live | uint64_t{1} << number % 64);
  live_words_.store((given_ + 63) / 64, std::memory_order_release);
  return number;
}

std::vector<HolderId> HolderTable::Retire(IndexedWorker worker) {
  std::vector<HolderId> retired;
  const auto it = numbers_.find(worker);
  if (it == numbers_.end()) return retired;
  for (const int32_t number : it->second) {
    if (number < 0) continue;
    uint64_t* const live = live_.words() + number / 64;
    StoreWord(live, *live & ~(uint64_t{1} << number % 64));
    retired.push_back(static_cast<HolderId>(number));
  }
  numbers_.erase(it);
  retired_.insert(retired_.end(), retired.begin(), retired.end());
  return retired;
}

bool HolderTable::IsRetired(HolderId holder) const {
  return (live_.words()[holder / 64] >> holder % 64 & 1) == 0;
}

void HolderTable::Recycle(size_t count) {
  CHECK_LE(count, retired_.size());
  free_.insert(free_.end(), retired_.begin(), retired_.begin() + count);
  retired_.erase(retired_.begin(), retired_.begin() + count);
}

}  // namespace baton
