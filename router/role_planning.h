// Carries out the role planner's decisions: when to look at the fleet, which worker to call, and
// what to show.
//
//   advise  looks and shows the target split
//   apply   also flips: kTakeLease at the anchor → kSetRole at the worker
//
// The anchor is the usable worker with the smallest id among those that can change their role. All
// routers of a fleet see the same anchor. Only the planner that holds its lease flips a worker, so
// two planners never flip at the same time. The flipped worker gives its lease to the same planner.
//
// Pure: the host makes the calls and passes the time.
//
// Thread safety: none; the host locks.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "common/strong_int.h"
#include "routing/role_planner.h"
#include "routing/worker_registry.h"

namespace baton {

enum class RolePlannerMode : uint8_t { kOff, kAdvise, kApply };

struct RolePlanningOptions {
  RolePlannerMode mode = RolePlannerMode::kAdvise;
  int64_t period_ms = 10'000;  // at most 1,200,000, so that a lease is at most an hour
};

// A call of Worker.SetRole.
struct RoleCall {
  std::string worker_id;
  std::string address;
  Epoch epoch{0};
  std::optional<WorkerRole> role;  // nullopt: only takes the lease
  int64_t lease_ms = 0;
};

class RolePlanning {
 public:
  explicit RolePlanning(const RolePlanningOptions& options)
      : options_(options), planner_({.period_us = options.period_ms * 1000}) {}

  bool LookIsDue(int64_t now_us) const {
    return options_.mode != RolePlannerMode::kOff && now_us >= next_look_us_;
  }
  // Looks at the fleet. Returns the call to make. The next call comes only after OnAnswer.
  std::optional<RoleCall> Look(int64_t now_us, std::span<const WorkerRecord> workers,
                               const RoleLoad& load);
  // Takes the result of the last call. Returns the call that follows it at once.
  std::optional<RoleCall> OnAnswer(int64_t now_us, const absl::Status& status);

  RolePlannerMode mode() const { return options_.mode; }
  const RoleWish& wish() const { return planner_.wish(); }
  int64_t flips() const { return flips_; }
  const std::optional<RoleFlip>& last_flip() const { return last_flip_; }
  int64_t last_flip_us() const { return last_flip_us_; }
  // Why the last due flip was not carried out; empty if it was.
  const std::string& trouble() const { return trouble_; }

 private:
  const RolePlanningOptions options_;
  RolePlanner planner_;
  int64_t next_look_us_ = 0;
  // The flip that is being carried out.
  struct Pending {
    RoleFlip flip;
    RoleCall call;        // kSetRole
    bool leased = false;  // the anchor has answered
  };
  std::optional<Pending> pending_;
  int64_t flips_ = 0;
  std::optional<RoleFlip> last_flip_;
  int64_t last_flip_us_ = 0;
  std::string trouble_;
};

// "decode-1 prefills".
std::string DescribeFlip(const RoleFlip& flip);

}  // namespace baton
