#include "router/worker_registry.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace baton {

absl::Status WorkerRegistry::Check(const WorkerReport& report) const {
  for (const auto& [name, value] :
       {std::pair<const char*, const std::string&>("worker_id", report.id),
        {"address", report.address},
        {"fingerprint.model", report.model}}) {
    if (value.empty() || value.size() > kMaxNameBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, " has ", value.size(), " bytes; 1–", kMaxNameBytes, " are allowed"));
    }
  }
  if (report.epoch.value() == 0) return absl::InvalidArgumentError("epoch is 0");
  if (buried_until_us_.contains(Incarnation(report.id, report.epoch))) {
    return absl::FailedPreconditionError(
        absl::StrCat("worker ", report.id, ": epoch ", report.epoch.value(), " has ended"));
  }
  return absl::OkStatus();
}

absl::Status WorkerRegistry::Heartbeat(WorkerReport report) {
  Expire();
  RETURN_IF_ERROR(Check(report));
  for (WorkerRecord& worker : workers_) {
    if (worker.report.id != report.id || worker.report.epoch != report.epoch) continue;
    if (worker.report.model != report.model || worker.report.role != report.role) {
      return absl::FailedPreconditionError(
          absl::StrCat("worker ", report.id, " changed its model or role within one epoch"));
    }
    worker.report = std::move(report);
    worker.last_heard_us = clock_->NowUs();
    worker.unreachable = false;
    return absl::OkStatus();
  }

  for (size_t i = workers_.size(); i-- > 0;) {
    if (workers_[i].report.id == report.id || workers_[i].report.address == report.address) Bury(i);
  }
  if (!fleet_model_.empty() && report.model != fleet_model_) {
    return absl::FailedPreconditionError(
        absl::StrCat("model ", report.model, " differs from the fleet's model ", fleet_model_));
  }
  if (static_cast<int64_t>(workers_.size()) >= options_.max_workers) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the registry has its maximum of ", options_.max_workers, " workers"));
  }
  fleet_model_ = report.model;
  WorkerRecord record;
  record.number = WorkerNumber(next_number_++);
  record.report = std::move(report);
  record.last_heard_us = clock_->NowUs();
  workers_.push_back(std::move(record));
  return absl::OkStatus();
}

void WorkerRegistry::Leave(const std::string& id, Epoch epoch) {
  for (size_t i = 0; i < workers_.size(); ++i) {
    if (workers_[i].report.id == id && workers_[i].report.epoch == epoch) return Bury(i);
  }
}

void WorkerRegistry::MarkUnreachable(WorkerNumber number) {
  if (WorkerRecord* worker = FindMutable(number)) worker->unreachable = true;
}

void WorkerRegistry::Expire() {
  const int64_t oldest_us = clock_->NowUs() - options_.expiry_us;
  for (size_t i = workers_.size(); i-- > 0;) {
    if (workers_[i].last_heard_us < oldest_us) RemoveAt(i);
  }
  const int64_t now_us = clock_->NowUs();
  absl::erase_if(buried_until_us_, [now_us](const auto& entry) { return entry.second < now_us; });
}

std::vector<WorkerNumber> WorkerRegistry::TakeDeparted() { return std::exchange(departed_, {}); }

void WorkerRegistry::AddActive(WorkerNumber number) {
  if (WorkerRecord* worker = FindMutable(number)) {
    ++worker->active;
    ++worker->assigned;
  }
}

void WorkerRegistry::RemoveActive(WorkerNumber number) {
  if (WorkerRecord* worker = FindMutable(number)) --worker->active;
}

const WorkerRecord* WorkerRegistry::Find(WorkerNumber number) const {
  for (const WorkerRecord& worker : workers_) {
    if (worker.number == number) return &worker;
  }
  return nullptr;
}

WorkerRecord* WorkerRegistry::FindMutable(WorkerNumber number) {
  return const_cast<WorkerRecord*>(Find(number));
}

void WorkerRegistry::RemoveAt(size_t index) {
  departed_.push_back(workers_[index].number);
  workers_.erase(workers_.begin() + static_cast<std::ptrdiff_t>(index));
  if (workers_.empty()) fleet_model_.clear();
}

void WorkerRegistry::Bury(size_t index) {
  constexpr size_t kMaxBuried = 65536;
  if (buried_until_us_.size() >= kMaxBuried) buried_until_us_.erase(buried_until_us_.begin());
  const WorkerReport& report = workers_[index].report;
  buried_until_us_[Incarnation(report.id, report.epoch)] = clock_->NowUs() + kTombstoneUs;
  RemoveAt(index);
}

}  // namespace baton
