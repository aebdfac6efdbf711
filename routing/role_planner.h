// Plans the roles of a fleet's workers: how many should prefill and how many should decode, from
// the measured load.
//
// Demand is counted in workers. A demand of 1.5 keeps one and a half workers busy.
//  - Demand of prompts: the time to compute the uncached tokens of the prompts that arrive in a
//    second, plus the time to compute the prompts that already wait, spread over a period. Prompts
//    whose decode worker has no blocks for them do not count as waiting here.
//  - Demand of answers: the larger of two figures. The first is the time that the tokens generated
//    in a second would take in full batches. The second is the share of KV blocks, and of places in
//    the batch, that sequences need, waiting sequences included.
//
// The use of a split is the demand of its busier role, divided by the workers of that role. Workers
// with both roles help both. Decode workers also compute prompts, if prefill workers have too many
// of them. That slows their answers, so such prompts count kMixing times.
//
// The target is the split with the least use. The planner flips a worker only by these rules:
//  1. Flips go towards the target, one worker at a time. They begin if the target lowers the use to
//     kBegin of the present one. They continue while each flip lowers it to kContinue. The use
//     after a flip counts the work that the remaining workers must take over.
//  2. The present use is at least kLeastUse. A fleet with little work stays as it is.
//  3. All looks of a period agree on the direction. A period has kLooks looks.
//  4. There is at most one flip in a period. A worker that has joined, or has changed its role,
//     keeps the role for at least three periods.
//  5. There is no target before kLeastFinished requests have finished on warm workers. A worker is
//     cold for kWarmUpUs after it joined. Its first requests are slow and do not count.
//  6. At least one usable worker keeps decoding. There is no other lower limit, because load could
//     never change a limit.
//
// Pure: time, workers and load are passed in.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "routing/worker_registry.h"

namespace baton {

// Load since the last look.
struct RoleLoad {
  int64_t prefill_us = 0;  // expected time to compute the prompts that arrived, uncached part
  int64_t finished = 0;    // requests that finished on warm workers
  // Expected time of one answer token in a full batch; 0: unknown.
  double token_us = 0;
};

struct RoleFlip {
  WorkerNumber number{0};
  std::string worker_id;
  WorkerRole from = WorkerRole::kPrefill;
  WorkerRole to = WorkerRole::kDecode;
};

// Result of a look.
struct RoleWish {
  bool known = false;         // false: too little is measured; `reason` says what is missing
  double prefill_demand = 0;  // workers
  double decode_demand = 0;
  int32_t prefill_workers = 0;  // usable ones now
  int32_t decode_workers = 0;
  int32_t both_workers = 0;
  int32_t wanted_prefill_workers = 0;  // of prefill_workers + decode_workers
  double use = 0;                      // of the present split
  double wanted_use = 0;               // of the wanted split
  // Of the demand, 0 to 1.
  double wanted_prefill_share() const {
    const double demand = prefill_demand + decode_demand;
    return demand > 0 ? prefill_demand / demand : 0;
  }
  std::optional<RoleFlip> flip;  // the flip that is due now
  std::string reason;            // a sentence
};

struct RolePlannerOptions {
  int64_t period_us = 10'000'000;
};

class RolePlanner {
 public:
  static constexpr int kLooks = 4;  // looks in a period
  static constexpr double kBegin = 0.85;
  static constexpr double kContinue = 0.97;
  static constexpr double kLeastUse = 0.4;
  static constexpr double kMixing = 3;
  static constexpr double kMostKvUse = 0.7;  // of decode workers after a flip
  static constexpr int64_t kLeastFinished = 16;
  static constexpr int64_t kWarmUpUs = 5'000'000;

  explicit RolePlanner(const RolePlannerOptions& options) : options_(options) {}

  int64_t look_interval_us() const { return options_.period_us / kLooks; }
  // Looks at the fleet. Call it every look_interval_us.
  const RoleWish& Look(int64_t now_us, std::span<const WorkerRecord> workers, const RoleLoad& load);
  // The due flip was carried out. The next one is due a period later at the earliest.
  void Flipped(int64_t now_us);
  // Of the last look.
  const RoleWish& wish() const { return wish_; }

  // Returns true if the worker is past its warm-up.
  static bool IsWarm(const WorkerRecord& worker, int64_t now_us) {
    return now_us - worker.joined_us >= kWarmUpUs;
  }

 private:
  struct Split {
    int32_t prefill = 0;
    int32_t decode = 0;
    int32_t both = 0;
  };
  void Measure(int64_t now_us, std::span<const WorkerRecord> workers, const RoleLoad& load);
  double UseOf(const Split& split) const;
  int32_t BestPrefillCount(const Split& split) const;
  // Returns +1 or -1, the change of the number of prefill workers that rules 1, 2 and 6 allow; else
  // 0.
  int DirectionOf(const Split& split) const;
  bool HasRoomForKv(const Split& after) const;
  std::optional<RoleFlip> Choose(int direction, int64_t now_us,
                                 std::span<const WorkerRecord> workers) const;
  std::string Describe(const Split& split) const;

  const RolePlannerOptions options_;
  RoleWish wish_;
  // Moving averages.
  double prefill_demand_ = 0;
  double decode_demand_ = 0;
  double kv_need_ = 0;  // sum over workers that decode
  int64_t last_look_us_ = 0;
  int64_t looks_ = 0;
  int64_t finished_ = 0;
  int direction_ = 0;  // on which the last looks agree
  int agreeing_ = 0;   // number of these looks
  int moving_ = 0;     // direction of the last flip; 0: the split was good since then
  int64_t flipped_us_ = 0;
};

}  // namespace baton
