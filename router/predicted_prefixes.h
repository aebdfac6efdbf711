// Units that workers will soon report as cached: the prefixes of requests that have just ended. A
// worker's KV events and its answers travel on different streams. So the next turn of a chat may
// reach the router before the events of the last turn.
//
// A prediction expires after a short time; then only the index counts. Predictions are made when a
// request ends, not when it is routed. A prompt that is still being computed does not help other
// requests with the same prompt. Counting on it would send a whole burst of them to one worker.
//
// Invariant: size() <= capacity. The oldest predictions are dropped first.
//
// Thread safety: the host's lock. Pure: the caller passes the time.
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
  // REQUIRES: capacity >= 1, counted in (unit, worker) pairs.
  PredictedPrefixes(size_t capacity, int64_t lifetime_us)
      : capacity_(capacity), lifetime_us_(lifetime_us) {}

  // Predicts that the worker will hold these units.
  void Add(IndexedWorker worker, std::span<const Hash128> hashes, int64_t now_us);
  // `units` says how many leading units of `hashes` each worker holds (absent: none). Raises these
  // counts by the predicted units that follow without a gap.
  void Extend(std::span<const Hash128> hashes, int64_t now_us,
              absl::flat_hash_map<IndexedWorker, int32_t>& units);

  // Same for a part of the workers, in a large fleet: those in `units`, and workers whose first
  // predicted unit is one of `begins`, at most `most` for each. `begins` has the different numbers
  // of units that workers hold, as far as the index knows.
  void ExtendSome(std::span<const Hash128> hashes, int64_t now_us, std::span<const int32_t> begins,
                  size_t most, absl::flat_hash_map<IndexedWorker, int32_t>& units);

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
  void ExtendOne(std::span<const Hash128> hashes, IndexedWorker worker, int32_t& held) const;
  void Forget(const Entry& entry);
  void Expire(int64_t now_us);

  const size_t capacity_;
  const int64_t lifetime_us_;
  absl::flat_hash_map<Hash128, absl::InlinedVector<Prediction, 2>> predicted_;
  std::deque<Entry> by_age_;  // oldest first; an entry that was predicted again differs in its time
  size_t size_ = 0;
};

}  // namespace baton
