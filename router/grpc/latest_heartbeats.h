// The last status that each worker reported, in the words of the wire, for GetStatus.
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

class LatestHeartbeats {
 public:
  void Put(const v1::WorkerStatus& status);
  // The worker says goodbye, and its calls may go on for `drain_ms`. Ignored where no status of
  // this incarnation is known.
  void PutLeaving(const v1::WorkerStatus& status, int64_t drain_ms);
  // The last statuses of workers that may still end their calls.
  std::vector<v1::WorkerStatus> Leaving() const;
  // The statuses of `workers`, with the router's own view of each.
  std::vector<v1::WorkerStatus> Of(const std::vector<WorkerRecord>& workers) const;
  // Forgets all others.
  void KeepOnly(const std::vector<WorkerRecord>& workers);

 private:
  struct Leave {
    v1::WorkerStatus status;
    std::chrono::steady_clock::time_point end;
  };

  mutable std::mutex mutex_;  // guards all below
  absl::flat_hash_map<std::string, v1::WorkerStatus> by_worker_id_;
  std::map<std::string, Leave> leaving_;  // by worker id
};

}  // namespace baton
