// Units that workers are about to tell of: what a request that just ended must have left in their
// caches. Its events travel on another stream than its answer, so the next turn of a chat may be
// here before them.
//
// A prediction lives for a moment only; then the index alone is believed. It is made when a request
// ends, not when it is routed: a prompt that is still being computed is of no use to its equals,
// and counting on it would pile up a burst of them on one worker.
//
// Invariant: size() <= capacity, the oldest go first.
//
// Thread safety: the host's lock. Pure: time comes in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "cache/cache_key.h"
#include "cache/index/indexed_worker.h"

namespace baton {

class PredictedPrefixes {
 public:
  // REQUIRES: capacity >= 1, of (unit, worker) pairs.
  PredictedPrefixes(size_t capacity, int64_t lifetime_us)
      : capacity_(capacity), lifetime_us_(lifetime_us) {}

  // The worker will hold these units.
  void Add(IndexedWorker worker, std::span<const Hash128> hashes, int64_t now_us);
  // Goes on from the leading units of `hashes` that workers hold (absent: none) through those that
  // are predicted of them.
  void Extend(std::span<const Hash128> hashes, int64_t now_us,
              absl::flat_hash_map<IndexedWorker, int32_t>& units);

  size_t size() const { return size_; }

 private:
  struct Prediction {
    IndexedWorker worker;
    int64_t until_us;
  };
  struct Entry {
    Hash128 hash;
    Prediction prediction;
  };
  bool Has(const Hash128& hash, IndexedWorker worker) const;
  void Forget(const Entry& entry);
  void Expire(int64_t now_us);

  const size_t capacity_;
  const int64_t lifetime_us_;
  absl::flat_hash_map<Hash128, absl::InlinedVector<Prediction, 2>> predicted_;
  std::deque<Entry> by_age_;  // one that was predicted again since differs in its time
  size_t size_ = 0;
};

}  // namespace baton
