#include "router/router_core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace baton {
namespace {

constexpr size_t kMostPredictions = size_t{1} << 18;  // of (unit, worker) pairs
constexpr int64_t kLongestTickUs = 1'000'000;         // Tick is called every 100 ms
constexpr int64_t kPredictionUs = 2'000'000;          // events take milliseconds

bool IsClientsError(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsOutOfRange(status);
}

}  // namespace

RouterCore::RouterCore(const RouterOptions& options, const Clock* clock, KeySeeds key_seeds)
    : options_(options),
      clock_(clock),
      index_({.max_units = static_cast<size_t>(options.index_units),
              .patience_us = options.index_wait_ms * 1000,
              .key_seeds = key_seeds}),
      registry_({.model = options.pin_model,
                 .fingerprint = options.pin_fingerprint,
                 .mixed_fingerprints = options.mixed_fingerprints,
                 .expiry_us = options.worker_expiry_ms * 1000,
                 .max_workers = options.max_workers,
                 .longest_look_us = kLongestTickUs,
                 .notes_touched = options.routing.candidates > 0},
                clock),
      predicted_(kMostPredictions, kPredictionUs),
      policy_(MakeRoutingPolicy(options.routing)),
      candidates_(options.routing, options.routing.candidates * kDrawnEighths / 8) {}

absl::Status RouterCore::Heartbeat(WorkerReport report) {
  std::lock_guard lock(mutex_);
  if (registry_.workers().empty()) first_registered_us_ = clock_->NowUs();
  return registry_.Heartbeat(std::move(report));
}

void RouterCore::Leave(const std::string& id, Epoch epoch) {
  std::lock_guard lock(mutex_);
  registry_.Leave(id, epoch);
}

void RouterCore::Tick() {
  std::vector<WorkerNumber> departed;
  std::vector<std::pair<WorkerNumber, Epoch>> arrived;
  {
    std::lock_guard lock(mutex_);
    registry_.Expire();
    departed = registry_.TakeDeparted();
    for (const WorkerNumber number : departed) speeds_.Forget(number);
    WorkerNumber newest = newest_in_index_;
    for (const WorkerRecord& worker : registry_.workers()) {
      if (worker.number <= newest_in_index_) continue;  // numbers only grow
      newest = std::max(newest, worker.number);
      if (worker.report.prefix_cache) arrived.emplace_back(worker.number, worker.report.epoch);
    }
    newest_in_index_ = newest;
    // Decisions must not find a long list of changes.
    const std::vector<WorkerNumber> touched = registry_.TakeTouched();
    if (IsLarge()) {
      candidates_.Update(touched, registry_, speeds_);
    } else {
      candidates_.Clear();
    }
  }
  for (const auto& [number, epoch] : arrived) index_.Add(number, epoch, clock_->NowUs());
  for (const WorkerNumber number : departed) index_.Remove(number);
}

std::vector<FleetChange> RouterCore::TakeChanges() {
  std::lock_guard lock(mutex_);
  return registry_.TakeChanges();
}

std::vector<WorkerRecord> RouterCore::Workers() const {
  std::lock_guard lock(mutex_);
  return registry_.workers();
}

std::optional<WorkerRecord> RouterCore::ModelSource(uint64_t turn) const {
  std::lock_guard lock(mutex_);
  const std::string& wanted = registry_.fleet_model();
  if (wanted.empty() || (model_ != nullptr && model_->description().fingerprint == wanted))
    return std::nullopt;
  const std::vector<WorkerRecord>& workers = registry_.workers();
  return workers[turn % workers.size()];
}

absl::Status RouterCore::SetModel(std::shared_ptr<const ServedModel> model) {
  std::lock_guard lock(mutex_);
  if (model->description().fingerprint != registry_.fleet_model()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the description is for model ", model->description().fingerprint,
                     "; the fleet serves ", registry_.fleet_model()));
  }
  model_ = std::move(model);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const ServedModel>> RouterCore::model() const {
  std::lock_guard lock(mutex_);
  if (model_ == nullptr || (!registry_.fleet_model().empty() &&
                            model_->description().fingerprint != registry_.fleet_model())) {
    return absl::UnavailableError("no worker has registered its model yet");
  }
  return model_;
}

bool RouterCore::HasFleetLocked() const {
  if (model_ == nullptr || model_->description().fingerprint != registry_.fleet_model())
    return false;
  int32_t prefill = 0;
  int32_t decode = 0;
  bool decodes = false;  // a request needs a worker that has this role now
  for (const WorkerRecord& worker : registry_.workers()) {
    if (!worker.Usable()) continue;
    // Once the fleet was complete, roles may change, and such workers still serve both.
    const bool serves_both = has_recovered_ && worker.report.changes_role;
    prefill += serves_both || worker.CanPrefill() ? 1 : 0;
    decode += serves_both || worker.CanDecode() ? 1 : 0;
    decodes |= worker.CanDecode();
  }
  return prefill >= options_.min_prefill_workers && decode >= options_.min_decode_workers &&
         decodes;
}

bool RouterCore::ready() {
  std::vector<WorkerNumber> telling;
  bool has_waited = false;
  {
    std::lock_guard lock(mutex_);
    if (!HasFleetLocked()) return false;
    if (has_recovered_) return true;
    const int64_t now_us = clock_->NowUs();
    if (!recovering_since_us_) recovering_since_us_ = now_us;
    has_waited = now_us - *recovering_since_us_ >= options_.index_wait_ms * 1000;
    for (const WorkerRecord& worker : registry_.workers()) {
      if (worker.report.prefix_cache) telling.push_back(worker.number);
    }
  }
  if (!has_waited && !index_.HaveSettled(telling, clock_->NowUs())) return false;
  std::lock_guard lock(mutex_);
  has_recovered_ = true;
  return true;
}

int32_t RouterCore::PieceTokens() const {
  std::vector<int32_t> sizes;
  std::lock_guard lock(mutex_);
  for (const WorkerRecord& worker : registry_.workers()) {
    if (worker.report.chunks != nullptr) sizes.push_back(worker.report.chunks->piece_tokens);
  }
  return UsualPieceTokens(sizes);
}

void RouterCore::WorkerDone(WorkerNumber number) {
  std::lock_guard lock(mutex_);
  registry_.RemoveActive(number);
}

void RouterCore::PrefillAdded(const RoutePlan& plan) {
  std::lock_guard lock(mutex_);
  registry_.AddPrefill(plan.prefiller(), plan.work);
  if (plan.prefill) registry_.AddActive(*plan.prefill);
}

void RouterCore::PrefillDone(const RoutePlan& plan) {
  std::lock_guard lock(mutex_);
  registry_.RemovePrefill(plan.prefiller(), plan.work);
}

void RouterCore::Learn(const FinishedRequest& request) {
  std::lock_guard lock(mutex_);
  const WorkerRecord* const decode = registry_.Find(request.decode);
  if (decode == nullptr) return;
  const WorkerRecord* const prefill = request.prefill ? registry_.Find(*request.prefill) : decode;
  if (prefill == nullptr) return;
  speeds_.Learn(request);
  const int64_t now_us = clock_->NowUs();
  const bool warm = RolePlanner::IsWarm(*decode, now_us) && RolePlanner::IsWarm(*prefill, now_us);
  role_load_.finished += warm ? 1 : 0;
  registry_.Touch(request.decode);
  if (request.prefill) registry_.Touch(*request.prefill);
}

// The expected time of a token in a full batch, as a mean over the workers that decode.
double RouterCore::AnswerTokenUs() const {
  double sum_us = 0;
  int32_t counted = 0;
  for (const WorkerRecord& worker : registry_.workers()) {
    if (!worker.CanDecode() || worker.report.max_running <= 0) continue;
    const int32_t batch = worker.report.max_running;
    sum_us += speeds_.Of(worker.number).StepUs(batch) / batch;
    ++counted;
  }
  return counted > 0 ? sum_us / counted : 0;
}

RoleLoad RouterCore::TakeRoleLoad() {
  std::lock_guard lock(mutex_);
  RoleLoad load = std::exchange(role_load_, {});
  load.token_us = AnswerTokenUs();
  return load;
}

void RouterCore::Learn(const FinishedPull& pull) {
  std::lock_guard lock(mutex_);
  if (registry_.Find(pull.receiver) == nullptr) return;
  speeds_.Learn(pull);
  registry_.Touch(pull.receiver);
}

void RouterCore::MarkUnreachable(WorkerNumber number) {
  std::lock_guard lock(mutex_);
  registry_.MarkUnreachable(number);
}

void RouterCore::MarkReachable(WorkerNumber number) {
  std::lock_guard lock(mutex_);
  registry_.MarkReachable(number);
}

std::vector<WorkerNumber> RouterCore::SetSilent(const absl::flat_hash_set<WorkerNumber>& silent) {
  std::lock_guard lock(mutex_);
  return registry_.SetSilent(silent);
}

void RouterCore::Remember(WorkerNumber number, std::span<const Hash128> hashes) {
  if (!index_.IsFollowed(number)) return;
  size_t known = 0;
  for (const HeldPrefix& prefix : index_.MatchSome(hashes, 0, 0, {&number, 1}).prefixes) {
    known = std::max(known, static_cast<size_t>(prefix.units));
  }
  std::lock_guard lock(mutex_);
  predicted_.Add(number, hashes.subspan(known), clock_->NowUs());
}

size_t RouterCore::predicted_units() const {
  std::lock_guard lock(mutex_);
  return predicted_.size();
}

size_t RouterCore::waiting() const {
  std::lock_guard lock(mutex_);
  return waiting_.size();
}

absl::Status RouterCore::MayWait(int64_t left_us, int32_t priority, size_t most_ahead) const {
  std::lock_guard lock(mutex_);
  return waiting_.MayJoin(clock_->NowUs(), left_us, priority, most_ahead);
}

LoadShedder::Place RouterCore::Waits(int32_t priority) {
  std::lock_guard lock(mutex_);
  return waiting_.Join(clock_->NowUs(), priority);
}

void RouterCore::WaitsNoMore(const LoadShedder::Place& place, bool served) {
  std::lock_guard lock(mutex_);
  if (served) {
    waiting_.Served(place, clock_->NowUs());
  } else {
    waiting_.GaveUp(place, clock_->NowUs());
  }
}

void RouterCore::RequestStarted() {
  std::lock_guard lock(mutex_);
  ++counters_.active_requests;
  ++counters_.requests_total;
}

void RouterCore::RequestEnded(const absl::Status& status) {
  std::lock_guard lock(mutex_);
  --counters_.active_requests;
  if (status.ok()) return;
  if (absl::IsCancelled(status)) {
    ++counters_.requests_cancelled;
  } else if (IsClientsError(status)) {
    ++counters_.requests_rejected;
  } else {
    ++counters_.requests_failed;
  }
}

RouterCounters RouterCore::counters() const {
  std::lock_guard lock(mutex_);
  return counters_;
}

}  // namespace baton
