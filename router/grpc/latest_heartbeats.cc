#include "router/grpc/latest_heartbeats.h"

#include "absl/container/flat_hash_set.h"

namespace baton {

void LatestHeartbeats::Put(const v1::WorkerStatus& status) {
  std::lock_guard lock(mutex_);
  by_worker_id_[status.worker_id()] = status;
}

std::vector<v1::WorkerStatus> LatestHeartbeats::Of(const std::vector<WorkerRecord>& workers) const {
  std::lock_guard lock(mutex_);
  std::vector<v1::WorkerStatus> out;
  for (const WorkerRecord& worker : workers) {
    const auto found = by_worker_id_.find(worker.report.id);
    if (found == by_worker_id_.end()) continue;
    v1::WorkerStatus& status = out.emplace_back(found->second);
    status.set_unreachable(worker.unreachable);
    status.set_silent(worker.silent);
  }
  return out;
}

void LatestHeartbeats::KeepOnly(const std::vector<WorkerRecord>& workers) {
  absl::flat_hash_set<std::string> ids;
  for (const WorkerRecord& worker : workers) ids.insert(worker.report.id);
  std::lock_guard lock(mutex_);
  absl::erase_if(by_worker_id_, [&ids](const auto& entry) { return !ids.contains(entry.first); });
}

}  // namespace baton
