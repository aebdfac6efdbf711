// Reference model of the global index: every (worker, tier) is a set of hashes.
#pragma once

#include <algorithm>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "cache/index/global_index.h"

namespace baton {

class LiteralPrefixModel {
 public:
  void Stored(IndexedWorker worker, CacheTier tier, std::span<const Hash128> hashes) {
    held_[{worker, tier}].insert(hashes.begin(), hashes.end());
  }
  void Removed(IndexedWorker worker, CacheTier tier, std::span<const Hash128> hashes) {
    for (const Hash128& hash : hashes) held_[{worker, tier}].erase(hash);
  }
  void Cleared(IndexedWorker worker) {
    std::erase_if(held_, [&](const auto& entry) { return entry.first.first == worker; });
  }
  // Returns the matches in the order of GlobalIndex::MatchWorkers.
  std::vector<HeldPrefix> Match(std::span<const Hash128> hashes) const {
    std::vector<HeldPrefix> prefixes;
    for (const auto& [owner, set] : held_) {
      int32_t units = 0;
      while (units < static_cast<int32_t>(hashes.size()) && set.contains(hashes[units])) ++units;
      if (units > 0)
        prefixes.push_back({.worker = owner.first, .tier = owner.second, .units = units});
    }
    std::stable_sort(prefixes.begin(), prefixes.end(),
                     [](const HeldPrefix& a, const HeldPrefix& b) { return a.units > b.units; });
    return prefixes;
  }
  size_t memberships() const {
    size_t total = 0;
    for (const auto& [owner, set] : held_) total += set.size();
    return total;
  }
  size_t blocks() const {
    absl::flat_hash_set<Hash128> all;
    for (const auto& [owner, set] : held_) all.insert(set.begin(), set.end());
    return all.size();
  }
  const auto& held() const { return held_; }

 private:
  std::map<std::pair<IndexedWorker, CacheTier>, absl::flat_hash_set<Hash128>> held_;
};

}  // namespace baton
