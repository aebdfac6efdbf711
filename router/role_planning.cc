#include "router/role_planning.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

constexpr int64_t kLeasePeriods = 3;

RoleCall CallTo(const WorkerReport& report, std::optional<WorkerRole> role, int64_t lease_ms) {
  return {.worker_id = report.id,
          .address = report.address,
          .epoch = report.epoch,
          .role = role,
          .lease_ms = lease_ms};
}

// Null if no usable worker can change its role.
const WorkerRecord* AnchorOf(std::span<const WorkerRecord> workers) {
  const WorkerRecord* anchor = nullptr;
  for (const WorkerRecord& worker : workers) {
    if (!worker.Usable() || !worker.report.changes_role) continue;
    if (anchor == nullptr || worker.report.id < anchor->report.id) anchor = &worker;
  }
  return anchor;
}

}  // namespace

std::string DescribeFlip(const RoleFlip& flip) {
  return absl::StrCat(flip.worker_id, flip.to == WorkerRole::kPrefill ? " prefills" : " decodes");
}

std::optional<RoleCall> RolePlanning::Look(int64_t now_us, std::span<const WorkerRecord> workers,
                                           const RoleLoad& load) {
  next_look_us_ = now_us + planner_.look_interval_us();
  const RoleWish& wish = planner_.Look(now_us, workers, load);
  if (!wish.flip || options_.mode != RolePlannerMode::kApply || pending_) return std::nullopt;
  const WorkerRecord* const anchor = AnchorOf(workers);
  const auto target = std::find_if(workers.begin(), workers.end(), [&](const WorkerRecord& worker) {
    return worker.number == wish.flip->number;
  });
  if (anchor == nullptr || target == workers.end()) return std::nullopt;
  const int64_t lease_ms = kLeasePeriods * options_.period_ms;
  pending_ = Pending{.flip = *wish.flip,
                     .call = CallTo(target->report, wish.flip->to, lease_ms),
                     .leased = anchor->number == target->number};
  return pending_->leased ? pending_->call : CallTo(anchor->report, std::nullopt, lease_ms);
}

std::optional<RoleCall> RolePlanning::OnAnswer(int64_t now_us, const absl::Status& status) {
  if (!pending_) return std::nullopt;
  if (!status.ok()) {
    trouble_ = absl::StrCat(DescribeFlip(pending_->flip),
                            ": not carried out: ", std::string(status.message()));
    pending_.reset();
    return std::nullopt;
  }
  if (!pending_->leased) {
    pending_->leased = true;
    return pending_->call;
  }
  ++flips_;
  last_flip_ = pending_->flip;
  last_flip_us_ = now_us;
  trouble_.clear();
  pending_.reset();
  planner_.Flipped(now_us);
  return std::nullopt;
}

}  // namespace baton
