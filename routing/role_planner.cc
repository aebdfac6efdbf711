#include "routing/role_planner.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_format.h"

namespace baton {
namespace {

constexpr double kNewShare = 0.25;  // of the newest look in a moving average
constexpr double kFull = 0.9;       // share of the blocks from which on a pool counts as full
constexpr double kMostKvNeed = 8;   // of one worker, in workers

// Share of the worker's KV blocks that sequences and transfers take.
double KvUse(const WorkerRecord& worker) {
  const int64_t blocks = worker.report.pool_tokens / std::max(1, worker.report.block_size);
  if (blocks <= 0) return 0;
  const double available = static_cast<double>(worker.report.available_blocks);
  return std::clamp(1 - available / static_cast<double>(blocks), 0.0, 1.0);
}

// The part of a decode worker's pool that its sequences need. Those that wait for blocks need as
// many as the others have. It may exceed 1, up to kMostKvNeed. While a mean sequence still fits
// into the pool, waiting sequences wait for something else.
double KvNeed(const WorkerRecord& worker) {
  const double use = KvUse(worker);
  const double holding = worker.report.queued - worker.report.waiting;
  if (worker.report.waiting == 0 || holding <= 0) return use;
  const bool full = use >= kFull || (1 - use) * holding < use;
  return full ? std::min(kMostKvNeed, use * worker.report.queued / holding) : use;
}

// The part of a decode worker that its sequences need. It may exceed 1.
double Occupancy(const WorkerRecord& worker) {
  const int32_t places = worker.report.max_running;
  const double in_batch =
      places > 0 ? static_cast<double>(worker.report.queued) / static_cast<double>(places) : 0;
  return std::max(KvNeed(worker), in_batch);
}

void Move(double& mean, double value, bool first) {
  mean = first ? value : mean + kNewShare * (value - mean);
}

}  // namespace

void RolePlanner::Measure(int64_t now_us, std::span<const WorkerRecord> workers,
                          const RoleLoad& load) {
  const bool first = looks_++ == 0;
  const auto elapsed_us = static_cast<double>(std::max<int64_t>(1, now_us - last_look_us_));
  last_look_us_ = now_us;
  int64_t backlog_us = 0;
  int64_t own = 0;
  int64_t others = 0;
  double occupied = 0;
  double kv_need = 0;
  double tokens_per_s = 0;
  for (const WorkerRecord& worker : workers) {
    if (!worker.Usable()) continue;
    backlog_us += worker.BacklogUs(now_us);
    own += worker.active;
    others += worker.others;
    tokens_per_s += worker.report.decode_tokens_per_s;
    if (worker.report.role == WorkerRole::kPrefill) continue;
    occupied += Occupancy(worker);
    kv_need += KvNeed(worker);
  }
  // Other routers send prompts too, which this one does not see.
  const double all = own > 0 ? static_cast<double>(own + others) / static_cast<double>(own) : 1;
  const double arriving = first ? 0 : static_cast<double>(load.prefill_us) / elapsed_us;
  const double waiting = static_cast<double>(backlog_us) / static_cast<double>(options_.period_us);
  Move(prefill_demand_, all * (arriving + waiting), looks_ <= 2);
  Move(decode_demand_, std::max(occupied, tokens_per_s * load.token_us / 1e6), first);
  Move(kv_need_, kv_need, first);
  finished_ += load.finished;
}

double RolePlanner::UseOf(const Split& split) const {
  const double all = split.prefill + split.decode + split.both;
  const double decoding = split.decode + split.both;
  const double prefilling = split.prefill + split.both;
  // The prompts of `spilled` workers are computed where they are decoded, so that both roles are
  // used equally.
  double spilled = prefilling == 0 ? prefill_demand_ : 0;
  if (prefilling > 0 && split.decode > 0) {
    spilled = (prefill_demand_ * decoding - decode_demand_ * prefilling) /
              (decoding + kMixing * prefilling);
    spilled = std::clamp(spilled, 0.0, prefill_demand_);
  }
  const double use = (decode_demand_ + kMixing * spilled) / decoding;
  if (prefilling == 0) return use;
  return std::max(
      {use, (prefill_demand_ - spilled) / prefilling, (prefill_demand_ + decode_demand_) / all});
}

int32_t RolePlanner::BestPrefillCount(const Split& split) const {
  const int32_t count = split.prefill + split.decode;
  int32_t best = split.prefill;
  double least = UseOf(split);
  for (int32_t prefill = 0; prefill <= count; ++prefill) {
    if (count - prefill + split.both == 0) continue;
    const double use = UseOf({prefill, count - prefill, split.both});
    // A split that is hardly better is not worth a flip.
    if (use < least * 0.999) {
      least = use;
      best = prefill;
    }
  }
  return best;
}

bool RolePlanner::HasRoomForKv(const Split& after) const {
  return kv_need_ <= kMostKvUse * (after.decode + after.both);
}

int RolePlanner::DirectionOf(const Split& split) const {
  const double use = UseOf(split);
  const int32_t best = BestPrefillCount(split);
  if (use < kLeastUse || best == split.prefill) return 0;
  const int direction = best > split.prefill ? 1 : -1;
  const Split after = {split.prefill + direction, split.decode - direction, split.both};
  if (after.decode + after.both == 0 || (direction > 0 && !HasRoomForKv(after))) return 0;
  const double use_after = UseOf(after);
  if (moving_ == direction) return use_after <= kContinue * use ? direction : 0;
  const double least = UseOf({best, split.prefill + split.decode - best, split.both});
  return least <= kBegin * use && use_after < use ? direction : 0;
}

std::optional<RoleFlip> RolePlanner::Choose(int direction, int64_t now_us,
                                            std::span<const WorkerRecord> workers) const {
  const WorkerRole from = direction > 0 ? WorkerRole::kDecode : WorkerRole::kPrefill;
  const WorkerRole to = direction > 0 ? WorkerRole::kPrefill : WorkerRole::kDecode;
  const int64_t rested_us = now_us - 3 * options_.period_us;
  // The least loaded of the workers that have rested comes first.
  const auto rank = [&](const WorkerRecord& worker) {
    return std::tuple(worker.Load(), worker.role_since_us, worker.report.id);
  };
  const WorkerRecord* chosen = nullptr;
  for (const WorkerRecord& worker : workers) {
    if (!worker.Usable() || worker.report.role != from || !worker.report.changes_role) continue;
    if (worker.role_since_us > rested_us) continue;
    if (chosen == nullptr || rank(worker) < rank(*chosen)) chosen = &worker;
  }
  if (chosen == nullptr) return std::nullopt;
  return RoleFlip{.number = chosen->number, .worker_id = chosen->report.id, .from = from, .to = to};
}

std::string RolePlanner::Describe(const Split& split) const {
  std::string text = absl::StrFormat(
      "prompts keep %.2f workers busy, and answers %.2f; with %d prefill and %d decode workers",
      prefill_demand_, decode_demand_, split.prefill, split.decode);
  if (split.both > 0) absl::StrAppendFormat(&text, " and %d with both roles", split.both);
  absl::StrAppendFormat(&text, ", the load of the busier role is %.0f%%", 100 * wish_.use);
  if (wish_.wanted_prefill_workers == split.prefill) return text + ", the least of all splits";
  absl::StrAppendFormat(&text, "; with %d and %d, it would be %.0f%%", wish_.wanted_prefill_workers,
                        split.prefill + split.decode - wish_.wanted_prefill_workers,
                        100 * wish_.wanted_use);
  if (wish_.use < kLeastUse) return text + "; the load is too low to change roles";
  if (direction_ == 0) return text + "; the gain is too small to change roles";
  if (agreeing_ < kLooks) return text + "; the planner waits to see whether this lasts";
  return text;
}

const RoleWish& RolePlanner::Look(int64_t now_us, std::span<const WorkerRecord> workers,
                                  const RoleLoad& load) {
  Measure(now_us, workers, load);
  Split split;
  bool all_warm = true;
  for (const WorkerRecord& worker : workers) {
    if (!worker.Usable()) continue;
    all_warm = all_warm && IsWarm(worker, now_us);
    ++(worker.report.role == WorkerRole::kPrefill  ? split.prefill
       : worker.report.role == WorkerRole::kDecode ? split.decode
                                                   : split.both);
  }
  wish_ = {.prefill_demand = prefill_demand_,
           .decode_demand = decode_demand_,
           .prefill_workers = split.prefill,
           .decode_workers = split.decode,
           .both_workers = split.both,
           .wanted_prefill_workers = split.prefill,
           .flip = std::nullopt,
           .reason = {}};
  if (split.decode + split.both == 0 || !all_warm || finished_ < kLeastFinished) {
    direction_ = agreeing_ = 0;
    wish_.reason = split.decode + split.both == 0 ? "no usable worker has the role decode or both"
                   : !all_warm                    ? "a worker has joined and is not warm yet"
                               : absl::StrFormat("%d of %d requests have finished on warm workers",
                                                 finished_, kLeastFinished);
    return wish_;
  }
  wish_.known = true;
  wish_.use = UseOf(split);
  wish_.wanted_prefill_workers = BestPrefillCount(split);
  wish_.wanted_use =
      UseOf({wish_.wanted_prefill_workers,
             split.prefill + split.decode - wish_.wanted_prefill_workers, split.both});
  const int direction = DirectionOf(split);
  agreeing_ = direction == direction_ ? std::min(agreeing_ + 1, kLooks) : 1;
  direction_ = direction;
  if (direction_ == 0 && agreeing_ >= kLooks) moving_ = 0;
  wish_.reason = Describe(split);
  const bool rested = flipped_us_ == 0 || now_us - flipped_us_ >= options_.period_us;
  if (direction_ != 0 && agreeing_ >= kLooks && rested) {
    wish_.flip = Choose(direction_, now_us, workers);
    if (!wish_.flip) wish_.reason += "; no worker may change its role now";
  }
  return wish_;
}

void RolePlanner::Flipped(int64_t now_us) {
  flipped_us_ = now_us;
  moving_ = direction_;
  direction_ = agreeing_ = 0;
  wish_.flip.reset();
}

}  // namespace baton
