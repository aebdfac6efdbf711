// The status from each worker's latest heartbeat, as a wire message, for GetStatus.
//
// Thread safety: every function, from any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "baton/v1/inference.pb.h"
#include "routing/worker_registry.h"

namespace baton {

// A worker that serves metrics.
struct MetricsTarget {
  std::string address;  // HOST:PORT
  std::string worker_id;
  v1::WorkerRole role = v1::WORKER_ROLE_UNSPECIFIED;
};

class LatestHeartbeats {
 public:
  // `metrics_address`: where the worker serves its metrics; ignored unless it is a HOST:PORT.
  void Put(const v1::WorkerStatus& status, const std::string& metrics_address = "");
  // Records that the worker leaves and that its calls may continue for `drain_ms`. Ignored if no
  // status with this epoch is known.
  void PutLeaving(const v1::WorkerStatus& status, int64_t drain_ms);
  // Returns the last statuses of workers that have left but may still finish calls.
  std::vector<v1::WorkerStatus> Leaving() const;
  // Returns the statuses of `workers`, with the router's own view of each.
  std::vector<v1::WorkerStatus> Of(const std::vector<WorkerRecord>& workers) const;
  // Where the workers with known statuses serve their metrics, by worker id.
  std::vector<MetricsTarget> MetricsTargets() const;
  // Forgets the statuses of all other workers.
  void KeepOnly(const std::vector<WorkerRecord>& workers);

 private:
  struct Leave {
    v1::WorkerStatus status;
    std::chrono::steady_clock::time_point end;
  };

  mutable std::mutex mutex_;  // guards all below
  absl::flat_hash_map<std::string, v1::WorkerStatus> by_worker_id_;
  std::map<std::string, std::string> metrics_addresses_;  // by worker id; only of those with one
  std::map<std::string, Leave> leaving_;                  // by worker id
};

}  // namespace baton
