#include "router/predicted_prefixes.h"

#include <algorithm>

namespace baton {

void PredictedPrefixes::Add(IndexedWorker worker, std::span<const Hash128> hashes, int64_t now_us) {
  Expire(now_us);
  const Prediction made{.worker = worker, .until_us = now_us + lifetime_us_};
  for (const Hash128& hash : hashes) {
    auto& predictions = predicted_[hash];
    const auto it = std::find_if(predictions.begin(), predictions.end(),
                                 [&](const Prediction& p) { return p.worker == worker; });
    if (it == predictions.end()) {
      predictions.push_back(made);
      ++size_;
    } else if (it->until_us != made.until_us) {
      *it = made;
    } else {
      continue;
    }
    by_age_.push_back({.hash = hash, .prediction = made});
    while (by_age_.size() > capacity_) {
      const Entry oldest = by_age_.front();
      by_age_.pop_front();
      Forget(oldest);
    }
  }
}

void PredictedPrefixes::Forget(const Entry& entry) {
  const auto found = predicted_.find(entry.hash);
  if (found == predicted_.end()) return;
  auto& predictions = found->second;
  const auto it = std::find_if(predictions.begin(), predictions.end(), [&](const Prediction& p) {
    return p.worker == entry.prediction.worker && p.until_us == entry.prediction.until_us;
  });
  if (it == predictions.end()) return;
  predictions.erase(it);
  --size_;
  if (predictions.empty()) predicted_.erase(found);
}

void PredictedPrefixes::Expire(int64_t now_us) {
  while (!by_age_.empty() && by_age_.front().prediction.until_us <= now_us) {
    Forget(by_age_.front());
    by_age_.pop_front();
  }
}

bool PredictedPrefixes::Has(const Hash128& hash, IndexedWorker worker) const {
  const auto found = predicted_.find(hash);
  return found != predicted_.end() &&
         std::any_of(found->second.begin(), found->second.end(),
                     [&](const Prediction& p) { return p.worker == worker; });
}

void PredictedPrefixes::Extend(std::span<const Hash128> hashes, int64_t now_us,
                               absl::flat_hash_map<IndexedWorker, int32_t>& units) {
  Expire(now_us);
  if (predicted_.empty() || hashes.empty()) return;
  if (const auto first = predicted_.find(hashes[0]); first != predicted_.end()) {
    for (const Prediction& p : first->second) units.try_emplace(p.worker, 0);
  }
  for (auto& [worker, held] : units) ExtendOne(hashes, worker, held);
}

void PredictedPrefixes::ExtendOne(std::span<const Hash128> hashes, IndexedWorker worker,
                                  int32_t& held) const {
  while (held < static_cast<int32_t>(hashes.size()) && Has(hashes[held], worker)) ++held;
}

void PredictedPrefixes::ExtendSome(std::span<const Hash128> hashes, int64_t now_us,
                                   std::span<const int32_t> begins, size_t most,
                                   absl::flat_hash_map<IndexedWorker, int32_t>& units) {
  Expire(now_us);
  if (predicted_.empty()) return;
  for (auto& [worker, held] : units) ExtendOne(hashes, worker, held);
  for (const int32_t begin : begins) {
    if (begin < 0 || begin >= static_cast<int32_t>(hashes.size())) continue;
    const auto found = predicted_.find(hashes[static_cast<size_t>(begin)]);
    if (found == predicted_.end()) continue;
    size_t left = most;
    // The latest predictions first: they are the likeliest to be unknown to the index.
    for (auto it = found->second.rbegin(); it != found->second.rend() && left > 0; ++it, --left) {
      int32_t held = begin;
      ExtendOne(hashes, it->worker, held);
      int32_t& known = units[it->worker];
      known = std::max(known, held);
    }
  }
}

}  // namespace baton
