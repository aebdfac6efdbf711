// The status from each worker's latest heartbeat, as a wire message, for GetStatus.
//
// Thread safety: every function, from any thread.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "baton/v1/inference.pb.h"
#include "routing/worker_registry.h"

namespace baton {

class LatestHeartbeats {
 public:
  void Put(const v1::WorkerStatus& status);
  // Returns the statuses of `workers`, with the router's own view of each.
  std::vector<v1::WorkerStatus> Of(const std::vector<WorkerRecord>& workers) const;
  // Forgets the statuses of all other workers.
  void KeepOnly(const std::vector<WorkerRecord>& workers);

 private:
  mutable std::mutex mutex_;
  absl::flat_hash_map<std::string, v1::WorkerStatus> by_worker_id_;
};

}  // namespace baton
