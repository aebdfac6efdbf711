#include "router/grpc/latest_heartbeats.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "common/host_port.h"

namespace baton {
namespace {

constexpr size_t kMostAddressBytes = 256;
constexpr int64_t kLongestDrainMs = 3'600'000;  // as of --drain-ms

}  // namespace

void LatestHeartbeats::Put(const v1::WorkerStatus& status, const std::string& metrics_address) {
  const bool has_metrics =
      metrics_address.size() <= kMostAddressBytes && ParseHostPort(metrics_address).ok();
  std::lock_guard lock(mutex_);
  if (has_metrics) {
    metrics_addresses_[status.worker_id()] = metrics_address;
  } else {
    metrics_addresses_.erase(status.worker_id());
  }
  by_worker_id_[status.worker_id()] = status;
  leaving_.erase(status.worker_id());
}

void LatestHeartbeats::PutLeaving(const v1::WorkerStatus& status, int64_t drain_ms) {
  std::lock_guard lock(mutex_);
  const auto known = by_worker_id_.find(status.worker_id());
  if (known == by_worker_id_.end() || known->second.epoch() != status.epoch()) return;
  const std::chrono::milliseconds drain(std::clamp<int64_t>(drain_ms, 0, kLongestDrainMs));
  leaving_[status.worker_id()] = {status, std::chrono::steady_clock::now() + drain};
}

std::vector<v1::WorkerStatus> LatestHeartbeats::Leaving() const {
  std::lock_guard lock(mutex_);
  const auto now = std::chrono::steady_clock::now();
  std::vector<v1::WorkerStatus> out;
  for (const auto& [id, leave] : leaving_) {
    if (now < leave.end) out.push_back(leave.status);
  }
  return out;
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

std::vector<MetricsTarget> LatestHeartbeats::MetricsTargets() const {
  std::lock_guard lock(mutex_);
  std::vector<MetricsTarget> out;
  for (const auto& [id, address] : metrics_addresses_) {
    const auto status = by_worker_id_.find(id);
    if (status == by_worker_id_.end()) continue;
    out.push_back({.address = address, .worker_id = id, .role = status->second.role()});
  }
  return out;
}

void LatestHeartbeats::KeepOnly(const std::vector<WorkerRecord>& workers) {
  absl::flat_hash_set<std::string> ids;
  for (const WorkerRecord& worker : workers) ids.insert(worker.report.id);
  std::lock_guard lock(mutex_);
  const auto is_gone = [&ids](const auto& entry) { return !ids.contains(entry.first); };
  absl::erase_if(by_worker_id_, is_gone);
  std::erase_if(metrics_addresses_, is_gone);
  const auto now = std::chrono::steady_clock::now();
  std::erase_if(leaving_, [now](const auto& entry) { return now >= entry.second.end; });
}

}  // namespace baton
