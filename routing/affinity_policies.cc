#include "routing/affinity_policies.h"

#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <tuple>

namespace baton {

uint64_t AffinityKey(CacheNamespace cache_namespace, std::string_view session,
                     std::span<const Hash128> prompt_hashes, int32_t tokens) {
  if (!session.empty()) {
    return XXH3_64bits_withSeed(session.data(), session.size(), cache_namespace.low());
  }
  const size_t runs = std::min(prompt_hashes.size(), static_cast<size_t>(tokens / kUnitsPerHash));
  return runs == 0 ? cache_namespace.low() : prompt_hashes[runs - 1].low;
}

const WorkerRecord& ConsistentHashPolicy::Pick(WorkerPool, Candidates candidates,
                                               const RoutingInput& input) {
  int64_t total = 1;  // this request
  for (const WorkerRecord* worker : candidates) total += worker->Load();
  const double mean = static_cast<double>(total) / static_cast<double>(candidates.size());
  const auto most = static_cast<int64_t>(std::ceil(options().load_bound * mean));
  // Some candidate is always below the bound, because not all can be above the mean.
  const WorkerRecord* best = nullptr;
  std::tuple<uint64_t, WorkerNumber> best_score;
  for (const WorkerRecord* worker : candidates) {
    if (worker->Load() + 1 > most) continue;
    const std::string& id = worker->report.id;
    const std::tuple score(XXH3_64bits_withSeed(id.data(), id.size(), input.affinity_key),
                           worker->number);
    if (best != nullptr && score <= best_score) continue;
    best = worker;
    best_score = score;
  }
  return *best;
}

const WorkerRecord& SessionAffinityPolicy::Pick(WorkerPool pool, Candidates candidates,
                                                const RoutingInput& input) {
  WorkerNumber& known = Use(input.affinity_key).workers[static_cast<size_t>(pool)];
  const auto found = std::find_if(candidates.begin(), candidates.end(),
                                  [&](const auto* worker) { return worker->number == known; });
  if (found != candidates.end()) return **found;
  const WorkerRecord& chosen = LeastLoaded(candidates);
  known = chosen.number;
  return chosen;
}

SessionAffinityPolicy::Session& SessionAffinityPolicy::Use(uint64_t key) {
  if (const auto found = sessions_.find(key); found != sessions_.end()) {
    by_use_.splice(by_use_.begin(), by_use_, found->second);
    return by_use_.front();
  }
  if (sessions_.size() >= static_cast<size_t>(options().max_sessions)) {
    sessions_.erase(by_use_.back().key);
    by_use_.pop_back();
  }
  by_use_.push_front({.key = key});
  sessions_[key] = by_use_.begin();
  return by_use_.front();
}

}  // namespace baton
