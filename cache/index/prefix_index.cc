#include "cache/index/prefix_index.h"

#include <algorithm>
#include <iterator>
#include <tuple>

#include "common/check.h"

namespace baton {

PrefixIndex::PrefixIndex(size_t capacity) : capacity_(capacity) { CHECK_GE(capacity, 1u); }

void PrefixIndex::Remove(Entries::iterator entry) {
  entries_.erase(entry->hash);
  by_use_.erase(entry);
}

void PrefixIndex::Insert(IndexedWorker worker, std::span<const Hash128> hashes) {
  if (removed_.contains(worker)) return;
  const size_t kept = std::min(hashes.size(), capacity_);
  // From the end, so that the beginning of the chain is the latest used.
  for (size_t i = kept; i-- > 0;) {
    const auto [it, is_new] = entries_.try_emplace(hashes[i]);
    if (is_new) {
      by_use_.emplace_front().hash = hashes[i];
      it->second = by_use_.begin();
    }
    Touch(it->second);
    DropRemoved(*it->second);
    auto& workers = it->second->workers;
    const auto place = std::lower_bound(workers.begin(), workers.end(), worker);
    if (place == workers.end() || *place != worker) workers.insert(place, worker);
    if (entries_.size() > capacity_) Remove(std::prev(by_use_.end()));
  }
}

std::vector<WorkerPrefix> PrefixIndex::Match(std::span<const Hash128> hashes) {
  std::vector<Entries::iterator> used;
  std::vector<WorkerPrefix> prefixes;
  int32_t units = 0;
  for (const Hash128& hash : hashes) {
    const auto it = entries_.find(hash);
    if (it == entries_.end()) break;
    DropRemoved(*it->second);
    if (it->second->workers.empty()) {
      Remove(it->second);
      break;
    }
    const auto& workers = it->second->workers;
    if (units == 0) {
      for (const IndexedWorker worker : workers) prefixes.push_back({.worker = worker, .units = 0});
    }
    bool any = false;
    for (WorkerPrefix& prefix : prefixes) {
      if (prefix.units != units) continue;
      if (!std::binary_search(workers.begin(), workers.end(), prefix.worker)) continue;
      ++prefix.units;
      any = true;
    }
    if (!any) break;
    ++units;
    used.push_back(it->second);
  }
  for (auto it = used.rbegin(); it != used.rend(); ++it) Touch(*it);
  std::sort(prefixes.begin(), prefixes.end(), [](const WorkerPrefix& a, const WorkerPrefix& b) {
    return std::tuple(-a.units, a.worker) < std::tuple(-b.units, b.worker);
  });
  return prefixes;
}

void PrefixIndex::RemoveWorker(IndexedWorker worker) { removed_.insert(worker); }

void PrefixIndex::DropRemoved(Entry& entry) const {
  if (removed_.empty()) return;
  auto& workers = entry.workers;
  const auto kept = std::remove_if(workers.begin(), workers.end(), [this](IndexedWorker worker) {
    return removed_.contains(worker);
  });
  workers.erase(kept, workers.end());
}

}  // namespace baton
