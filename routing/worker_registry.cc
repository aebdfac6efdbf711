#include "routing/worker_registry.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "routing/worker_match.h"
#include "routing/worker_places.h"

namespace baton {
namespace {

// Truncates a string from a worker for error messages, because it may be long.
std::string Shown(const std::string& text) { return text.substr(0, WorkerRegistry::kMaxNameBytes); }

}  // namespace

int64_t WorkerRecord::BacklogUs(int64_t now_us) const {
  if (prompts.empty()) return 0;
  const int64_t elapsed_us = std::max<int64_t>(0, now_us - prefilling_since_us);
  return pending.us - std::min(elapsed_us, prompts.front().us);
}

int64_t WorkerRecord::BacklogTokens(int64_t now_us) const {
  if (prompts.empty()) return 0;
  const PrefillWork& first = prompts.front();
  const auto elapsed_us = static_cast<double>(std::max<int64_t>(0, now_us - prefilling_since_us));
  const double share = first.us > 0 ? std::min(1.0, elapsed_us / static_cast<double>(first.us)) : 1;
  return pending.tokens - static_cast<int64_t>(share * static_cast<double>(first.tokens));
}

int64_t WorkerRecord::HeardAndSentUs() const {
  int64_t us = heard_own_us;
  for (size_t i = heard_prompts; i < prompts.size(); ++i) us += prompts[i].us;
  return us;
}

absl::Status WorkerRegistry::Check(const WorkerReport& report) const {
  for (const auto& [name, value] :
       {std::pair<const char*, const std::string&>("worker_id", report.id),
        {"address", report.address},
        {"fingerprint.model", report.model}}) {
    if (value.empty() || value.size() > kMaxNameBytes) {
      return absl::InvalidArgumentError(absl::StrCat(name, " has ", value.size(), " bytes; 1 to ",
                                                     kMaxNameBytes, " are allowed"));
    }
  }
  if (report.epoch.value() == 0) return absl::InvalidArgumentError("epoch is 0");
  if (buried_until_us_.contains(Incarnation(report.id, report.epoch))) {
    return absl::FailedPreconditionError(
        absl::StrCat("worker ", report.id, ": epoch ", report.epoch.value(), " has ended"));
  }
  return CheckPinned(report);
}

absl::Status WorkerRegistry::CheckPinned(const WorkerReport& report) const {
  if (!options_.fingerprint.empty() && report.fingerprint != options_.fingerprint) {
    return absl::FailedPreconditionError(absl::StrCat(
        "worker ", report.id, " has ", Shown(report.fingerprint), "; this router serves only \"",
        options_.fingerprint, "\" (--pin-fingerprint)"));
  }
  const std::string& pinned = options_.model;
  if (pinned.empty() || report.model == pinned || report.model_name == pinned) {
    return absl::OkStatus();
  }
  if (report.model_name.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "worker ", report.id, " reports no model name, only the fingerprint ", report.model,
        "; this router serves only \"", pinned, "\"; give --pin-model the fingerprint"));
  }
  return absl::FailedPreconditionError(
      absl::StrCat("worker ", report.id, " has model \"", report.model_name, "\" with fingerprint ",
                   report.model, "; this router serves only \"", pinned, "\" (--pin-model)"));
}

absl::Status WorkerRegistry::CheckUnchanged(const WorkerReport& before,
                                            const WorkerReport& report) const {
  if (before.model != report.model || !SameKind(before, report) ||
      before.prefix_cache != report.prefix_cache) {
    return absl::FailedPreconditionError(absl::StrCat(
        "worker ", report.id,
        " changed its model, fingerprint, backend, protocol versions, KV groups, their block size, "
        "or prefix cache within one epoch"));
  }
  return absl::OkStatus();
}

// Checks every worker, because a backend may be confirmed with only some of the fleet's backends.
absl::Status WorkerRegistry::CheckBackend(const WorkerReport& report,
                                          std::span<const WorkerNumber> taken) const {
  if (options_.mixed_fingerprints) return absl::OkStatus();
  for (const WorkerRecord& worker : workers_) {
    const std::string& backend = worker.report.backend;
    if (IsConfirmedPair(report.backend, backend, options_.confirmed_backends)) continue;
    if (std::find(taken.begin(), taken.end(), worker.number) != taken.end()) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "the worker has backend ", Shown(report.backend), ", the fleet has ", Shown(backend),
        "; no test has confirmed that their bits are equal. The worker can join when all workers "
        "with that backend have left, or with --mixed-fingerprints"));
  }
  return absl::OkStatus();
}

absl::Status WorkerRegistry::CheckNew(const WorkerReport& report,
                                      std::span<const WorkerNumber> taken) const {
  const auto others = static_cast<int64_t>(workers_.size()) - static_cast<int64_t>(taken.size());
  if (others > 0 && report.model != fleet_model_) {
    return absl::FailedPreconditionError(
        absl::StrCat("model ", report.model, " differs from the fleet's model ", fleet_model_));
  }
  if (others > 0 && !options_.mixed_fingerprints && report.fingerprint != fleet_fingerprint_) {
    return absl::FailedPreconditionError(
        absl::StrCat("the worker's answers may differ from the fleet's: it has ",
                     Shown(report.fingerprint), "; the fleet has ", Shown(fleet_fingerprint_),
                     ". The worker can join when all workers of the fleet have left, or with "
                     "--mixed-fingerprints"));
  }
  RETURN_IF_ERROR(CheckBackend(report, taken));
  if (others >= options_.max_workers) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the registry has its maximum of ", options_.max_workers, " workers"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<WorkerNumber>> WorkerRegistry::TakenOver(
    const WorkerReport& report) const {
  std::vector<WorkerNumber> holders;  // of the id or the address
  if (const auto it = by_id_.find(report.id); it != by_id_.end()) holders.push_back(it->second);
  if (const auto it = by_address_.find(report.address); it != by_address_.end()) {
    holders.push_back(it->second);
  }
  std::sort(holders.begin(), holders.end());
  holders.erase(std::unique(holders.begin(), holders.end()), holders.end());
  std::vector<WorkerNumber> taken;
  for (const WorkerNumber number : holders) {
    const WorkerRecord& worker = *Find(number);
    const bool same_id = worker.report.id == report.id;
    if (same_id && worker.report.epoch == report.epoch) continue;
    const int64_t silent_us = clock_->NowUs() - worker.last_heard_us;
    if (silent_us < options_.take_over_us) {
      return absl::FailedPreconditionError(absl::StrCat(
          same_id ? "worker id " : "address ", same_id ? report.id : report.address,
          " is in use by worker ", worker.report.id, ", epoch ", worker.report.epoch.value(),
          ", last heard ", silent_us / 1000, " ms ago; it can be taken over after ",
          options_.take_over_us / 1000, " ms"));
    }
    taken.push_back(number);
  }
  return taken;
}

absl::Status WorkerRegistry::Heartbeat(WorkerReport report) {
  Expire();
  RETURN_IF_ERROR(Check(report));
  ASSIGN_OR_RETURN(const std::vector<WorkerNumber> taken, TakenOver(report));
  const WorkerRecord* const known = FindIncarnation(report.id, report.epoch);
  RETURN_IF_ERROR(known != nullptr ? CheckUnchanged(known->report, report)
                                   : CheckNew(report, taken));

  for (size_t i = taken.size(); i-- > 0;) {
    const auto index = static_cast<size_t>(Find(taken[i]) - workers_.data());
    Note(FleetChange::Kind::kReplaced, workers_[index]);
    Bury(index);
  }
  WorkerRecord* worker = FindIncarnation(report.id, report.epoch);
  const bool joins = worker == nullptr;
  if (joins) {
    fleet_model_ = report.model;
    fleet_fingerprint_ = report.fingerprint;
    worker = &workers_.emplace_back();
    worker->number = WorkerNumber(next_number_++);
  }
  const bool changes_role = !joins && worker->report.role != report.role;
  const bool changes_use = worker->report.draining != report.draining;
  const int32_t others = std::max(0, report.queued - worker->active);
  const int64_t now_us = clock_->NowUs();
  const int64_t left = others > 0 ? report.prompt_tokens_left.value_or(0) : 0;
  const int64_t others_tokens = std::max<int64_t>(0, left - worker->BacklogTokens(now_us));
  // Nothing else in a report changes the worker's place among the candidates. With tokens of
  // others, that place depends on the time of the heartbeat.
  if (joins || changes_role || others != worker->others || others_tokens > 0 ||
      worker->others_tokens > 0 || report.draining != worker->report.draining ||
      report.IsFull() != worker->report.IsFull()) {
    NoteTouched(*worker);
  }
  worker->others = others;
  worker->others_tokens = others_tokens;
  worker->heard_own_us = worker->BacklogUs(now_us);
  worker->heard_prompts = worker->prompts.size();
  worker->last_heard_us = now_us;
  Store(std::move(report), *worker);
  if (joins) worker->joined_us = worker->last_heard_us;
  if (joins || changes_role) worker->role_since_us = worker->last_heard_us;
  if (joins || changes_role || changes_use) PlaceWorkers(workers_);
  if (joins) Note(FleetChange::Kind::kJoined, *worker);
  if (changes_role) Note(FleetChange::Kind::kRoleChanged, *worker);
  return absl::OkStatus();
}

void WorkerRegistry::Store(WorkerReport report, WorkerRecord& worker) {
  const WorkerReport& before = worker.report;
  if (before.address != report.address) {
    if (!before.address.empty()) by_address_.erase(before.address);
    by_address_[report.address] = worker.number;
  }
  by_id_[report.id] = worker.number;
  if (!before.id.empty()) CountRoom(before, -1);
  CountRoom(report, 1);
  worker.report = std::move(report);
}

void WorkerRegistry::CountRoom(const WorkerReport& report, int32_t change) {
  if (report.role == WorkerRole::kPrefill) return;
  const RoomShape shape{.pool_tokens = report.pool_tokens,
                        .context_length = report.context_length,
                        .block_size = report.block_size,
                        .paged = report.paged};
  const auto it = room_shapes_.try_emplace(shape, 0).first;
  it->second += change;
  if (it->second == 0) room_shapes_.erase(it);
}

void WorkerRegistry::Leave(const std::string& id, Epoch epoch) {
  const WorkerRecord* const worker = FindIncarnation(id, epoch);
  if (worker == nullptr) return;
  Note(FleetChange::Kind::kLeft, *worker);
  Bury(static_cast<size_t>(worker - workers_.data()));
}

void WorkerRegistry::MarkUnreachable(WorkerNumber number) {
  WorkerRecord* worker = FindMutable(number);
  if (worker == nullptr || worker->unreachable) return;
  worker->unreachable = true;
  PlaceWorkers(workers_);
  NoteTouched(*worker);
  Note(FleetChange::Kind::kUnreachable, *worker);
}

void WorkerRegistry::MarkReachable(WorkerNumber number) {
  WorkerRecord* worker = FindMutable(number);
  if (worker == nullptr || !worker->unreachable) return;
  worker->unreachable = false;
  PlaceWorkers(workers_);
  NoteTouched(*worker);
  Note(FleetChange::Kind::kReachable, *worker);
}

std::vector<WorkerNumber> WorkerRegistry::SetSilent(
    const absl::flat_hash_set<WorkerNumber>& silent) {
  // Workers that can take over requests, one of each kind.
  absl::InlinedVector<const WorkerReport*, 2> stand_ins;
  for (const WorkerRecord& worker : workers_) {
    const bool heard = !worker.unreachable && !silent.contains(worker.number);
    if (heard && worker.CanDecode() && !worker.report.draining) {
      const bool known = std::any_of(
          stand_ins.begin(), stand_ins.end(),
          [&](const WorkerReport* stand_in) { return SameKind(*stand_in, worker.report); });
      if (!known) stand_ins.push_back(&worker.report);
    }
  }
  std::vector<WorkerNumber> dispensable;
  bool changes = false;
  for (WorkerRecord& worker : workers_) {
    const bool replaceable =
        std::any_of(stand_ins.begin(), stand_ins.end(), [&](const WorkerReport* stand_in) {
          return !worker.CanDecode() || SameAnswers(*stand_in, worker.report);
        });
    const bool was_silent = worker.silent;
    worker.silent = silent.contains(worker.number) && replaceable;
    if (worker.silent != was_silent) {
      changes = true;
      NoteTouched(worker);
      Note(worker.silent ? FleetChange::Kind::kSilent : FleetChange::Kind::kAnswers, worker);
    }
    if (worker.silent) dispensable.push_back(worker.number);
  }
  if (changes) PlaceWorkers(workers_);
  const bool anybody =
      std::any_of(workers_.begin(), workers_.end(),
                  [](const WorkerRecord& worker) { return worker.Usable() && worker.CanDecode(); });
  for (const WorkerNumber number : silent) {
    if (anybody && Find(number) == nullptr) dispensable.push_back(number);
  }
  return dispensable;
}

void WorkerRegistry::Expire() {
  const int64_t look_us = clock_->NowUs();
  const int64_t asleep_us = look_us - last_look_us_ - options_.longest_look_us;
  if (options_.longest_look_us > 0 && asleep_us > 0) {
    for (WorkerRecord& worker : workers_) {
      worker.last_heard_us = std::min(worker.last_heard_us + asleep_us, look_us);
    }
  }
  last_look_us_ = look_us;
  const int64_t oldest_us = look_us - options_.expiry_us;
  if (look_us > next_expiry_us_) {
    // No worker becomes older than at its last heartbeat, so no other look is needed until then.
    int64_t oldest_heard_us = look_us;
    for (size_t i = workers_.size(); i-- > 0;) {
      if (workers_[i].last_heard_us >= oldest_us) {
        oldest_heard_us = std::min(oldest_heard_us, workers_[i].last_heard_us);
        continue;
      }
      Note(FleetChange::Kind::kExpired, workers_[i]);
      RemoveAt(i);
    }
    next_expiry_us_ = oldest_heard_us + options_.expiry_us;
  }
  const int64_t now_us = clock_->NowUs();
  absl::erase_if(buried_until_us_, [now_us](const auto& entry) { return entry.second < now_us; });
}

void WorkerRegistry::Note(FleetChange::Kind kind, const WorkerRecord& worker) {
  if (changes_.size() < kMostChanges) changes_.push_back({kind, worker.report});
}

std::vector<FleetChange> WorkerRegistry::TakeChanges() { return std::exchange(changes_, {}); }

void WorkerRegistry::NoteTouched(WorkerRecord& worker) {
  if (!options_.notes_touched || std::exchange(worker.touched, true)) return;
  touched_.push_back(worker.number);
}

void WorkerRegistry::Touch(WorkerNumber number) {
  if (WorkerRecord* worker = FindMutable(number)) NoteTouched(*worker);
}

std::vector<WorkerNumber> WorkerRegistry::TakeTouched() {
  for (const WorkerNumber number : touched_) {
    if (WorkerRecord* worker = FindMutable(number)) worker->touched = false;
  }
  return std::exchange(touched_, {});
}

std::vector<WorkerNumber> WorkerRegistry::TakeDeparted() { return std::exchange(departed_, {}); }

void WorkerRegistry::AddActive(WorkerNumber number) {
  if (WorkerRecord* worker = FindMutable(number)) {
    ++worker->active;
    ++worker->assigned;
    NoteTouched(*worker);
  }
}

void WorkerRegistry::RemoveActive(WorkerNumber number) {
  WorkerRecord* worker = FindMutable(number);
  if (worker == nullptr) return;
  --worker->active;
  NoteTouched(*worker);
}

void WorkerRegistry::AddPrefill(WorkerNumber number, const PrefillWork& work) {
  WorkerRecord* worker = FindMutable(number);
  if (worker == nullptr) return;
  if (worker->prompts.empty()) worker->prefilling_since_us = clock_->NowUs();
  worker->prompts.push_back(work);
  worker->pending.tokens += work.tokens;
  worker->pending.us += work.us;
  NoteTouched(*worker);
}

void WorkerRegistry::RemovePrefill(WorkerNumber number, const PrefillWork& work) {
  WorkerRecord* worker = FindMutable(number);
  if (worker == nullptr) return;
  const auto prompt = std::find(worker->prompts.begin(), worker->prompts.end(), work);
  if (prompt == worker->prompts.end()) return;
  if (prompt == worker->prompts.begin()) worker->prefilling_since_us = clock_->NowUs();
  const auto index = static_cast<size_t>(prompt - worker->prompts.begin());
  if (index < worker->heard_prompts) --worker->heard_prompts;
  worker->prompts.erase(prompt);
  worker->pending.tokens -= work.tokens;
  worker->pending.us -= work.us;
  NoteTouched(*worker);
}

const WorkerRecord* WorkerRegistry::Find(WorkerNumber number) const {
  if (workers_.empty()) return nullptr;
  const uint32_t first = workers_.front().number.value();
  const uint32_t last = workers_.back().number.value();
  if (number.value() < first || number.value() > last) return nullptr;
  // Numbers rise by at least one from place to place. If none is missing, the two bounds are equal.
  const size_t most = std::min<size_t>(number.value() - first, workers_.size() - 1);
  const size_t above = last - number.value();
  const size_t least = workers_.size() - 1 - std::min(above, workers_.size() - 1);
  const WorkerRecord* const begin = workers_.data() + least;
  const WorkerRecord* const end = workers_.data() + most + 1;
  const WorkerRecord* const it = std::lower_bound(
      begin, end, number,
      [](const WorkerRecord& worker, WorkerNumber wanted) { return worker.number < wanted; });
  return it != end && it->number == number ? it : nullptr;
}

WorkerRecord* WorkerRegistry::FindIncarnation(const std::string& id, Epoch epoch) {
  const auto it = by_id_.find(id);
  if (it == by_id_.end()) return nullptr;
  WorkerRecord* const worker = FindMutable(it->second);
  return worker->report.epoch == epoch ? worker : nullptr;
}

WorkerRecord* WorkerRegistry::FindMutable(WorkerNumber number) {
  return const_cast<WorkerRecord*>(Find(number));
}

void WorkerRegistry::RemoveAt(size_t index) {
  WorkerRecord& worker = workers_[index];
  departed_.push_back(worker.number);
  NoteTouched(worker);
  by_id_.erase(worker.report.id);
  by_address_.erase(worker.report.address);
  CountRoom(worker.report, -1);
  workers_.erase(workers_.begin() + static_cast<std::ptrdiff_t>(index));
  PlaceWorkers(workers_);
  if (!workers_.empty()) return;
  fleet_model_.clear();
  fleet_fingerprint_.clear();
}

void WorkerRegistry::Bury(size_t index) {
  constexpr size_t kMaxBuried = 65536;
  if (buried_until_us_.size() >= kMaxBuried) buried_until_us_.erase(buried_until_us_.begin());
  const WorkerReport& report = workers_[index].report;
  buried_until_us_[Incarnation(report.id, report.epoch)] = clock_->NowUs() + kTombstoneUs;
  RemoveAt(index);
}

}  // namespace baton
