// The router's hint of who has cached what: chained unit hashes → the workers that hold them.
//
// A hint costs time when it is wrong, never a token: the worker matches its own tree. So entries
// are few bytes, bounded in number, and forgotten least recently used first; of one chain the end
// goes before the beginning, since the end is worth nothing without it.
//
// Invariants:
//  1. size() <= capacity. Holders that were removed stay in their entries until a Match or an
//     Insert looks at them: removing a worker costs nothing while requests wait. An entry that is
//     left without a holder then goes, or is forgotten as the least recently used one.
//  2. Because a hash covers the whole chain before it, entries need no links to each other.
//
// Pure; not thread-safe: belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/container/inlined_vector.h"
#include "cache/cache_key.h"
#include "cache/index/indexed_worker.h"

namespace baton {

struct WorkerPrefix {
  IndexedWorker worker;
  int32_t units = 0;  // leading hashes held, of kUnitsPerHash cache units each

  bool operator==(const WorkerPrefix&) const = default;
};

class PrefixIndex {
 public:
  // REQUIRES: capacity >= 1, the largest number of distinct hashes.
  explicit PrefixIndex(size_t capacity);

  // The worker holds all of this chain; nothing for a worker that was removed. O(hashes).
  void Insert(IndexedWorker worker, std::span<const Hash128> hashes);
  // Every worker that holds the first hash: most units first, then by number. A gap ends a worker's
  // prefix. Counts as use. O(hashes held * workers).
  std::vector<WorkerPrefix> Match(std::span<const Hash128> hashes);
  // Forgets a worker for good: its number must not be given to another. O(1), and four bytes for as
  // long as this lives.
  void RemoveWorker(IndexedWorker worker);

  size_t size() const { return entries_.size(); }
  size_t capacity() const { return capacity_; }

 private:
  struct Entry {
    Hash128 hash;
    absl::InlinedVector<IndexedWorker, 4> workers;  // sorted
  };
  using Entries = std::list<Entry>;
  void Touch(Entries::iterator entry) { by_use_.splice(by_use_.begin(), by_use_, entry); }
  void Remove(Entries::iterator entry);
  void DropRemoved(Entry& entry) const;

  const size_t capacity_;
  Entries by_use_;  // latest first
  absl::flat_hash_map<Hash128, Entries::iterator> entries_;
  absl::flat_hash_set<IndexedWorker> removed_;
};

}  // namespace baton
