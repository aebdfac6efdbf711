// Naive model of the global index, to check its answers.
//
// Thread safety: belongs to one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "bench/cache_trace.h"
#include "cache/index/global_index.h"

namespace baton {

// Every worker is a set of hashes. The benchmark compares answers for a sample of the matches.
class LiteralFleet {
 public:
  LiteralFleet(const IndexWorkload& workload, uint32_t workers)
      : workload_(workload), held_(workers) {}
  void Event(const IndexOperation& op) {
    for (const Hash128& hash : workload_.HashesOf(op)) {
      if (op.kind == IndexOperation::Kind::kStored) {
        held_[op.worker].insert(hash);
      } else {
        held_[op.worker].erase(hash);
      }
    }
  }
  bool Agrees(const IndexOperation& op, const GlobalIndex& index, const PrefixMatch& match) const {
    for (uint32_t worker = 0; worker < held_.size(); ++worker) {
      int32_t units = 0;
      for (const Hash128& hash : workload_.HashesOf(op)) {
        if (!held_[worker].contains(hash)) break;
        ++units;
      }
      const auto holder = index.Holder(IndexedWorker(worker), CacheTier::kDevice);
      if (units != (holder ? match.units(*holder) : 0)) return false;
    }
    return true;
  }

 private:
  const IndexWorkload& workload_;
  std::vector<absl::flat_hash_set<Hash128>> held_;
};

}  // namespace baton
