#include "loadtest/simulated_fleet.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "loadtest/simulated_call.h"

namespace baton {
namespace {

constexpr int64_t kTickUs = BacklogNews::kLookEveryMs * 1000;
constexpr int64_t kWindowUs = 60'000'000;

RouterOptions OptionsOf(const SimulatedFleetOptions& options, int32_t router) {
  constexpr int64_t kMostUnits = int64_t{1} << 27;
  RouterOptions out;
  out.routing = options.routing;
  out.routing.seed += router;
  out.max_workers = options.workers;
  // Room for all that the workers can cache.
  const int64_t units = options.workers * (options.worker.pool_tokens / kUnitsPerHash + 1);
  out.index_units = static_cast<int32_t>(std::clamp<int64_t>(units, 1 << 16, kMostUnits));
  out.worker_expiry_ms = std::max<int64_t>(out.worker_expiry_ms, 4 * options.heartbeat_us / 1000);
  return out;
}

// Ratio of the largest load to the mean of loads [first, last).
double MaxOverMean(const std::vector<double>& loads, size_t first, size_t last) {
  double most = 0;
  double sum = 0;
  for (size_t i = first; i < last; ++i) {
    most = std::max(most, loads[i]);
    sum += loads[i];
  }
  return sum == 0 ? 0 : most * static_cast<double>(last - first) / sum;
}

// The greater ratio of the two pools. `border`: the number of prefill workers.
double MaxOverMean(const std::vector<double>& loads, size_t border) {
  const double decode = MaxOverMean(loads, border, loads.size());
  return border == 0 ? decode : std::max(decode, MaxOverMean(loads, 0, border));
}

}  // namespace

SimulatedFleet::SimulatedFleet(const SimulatedFleetOptions& options, const StepTimes* times,
                               const Clock* wall, const MakePolicy& make_policy)
    : options_(options), times_(times), wall_(wall), planning_(options.roles) {
  CHECK_GE(options.workers, 1);
  CHECK_GE(options.routers, 1);
  CHECK_LT(options.prefill_workers, options.workers);
  for (int32_t i = 0; i < options.workers; ++i) {
    workers_.push_back(std::make_unique<SimulatedWorker>(options.worker, times, &clock_));
  }
  backlog_news_.resize(workers_.size(), BacklogNews(options.worker.scheduler.token_budget));
  published_.resize(workers_.size());
  generated_.resize(workers_.size());
  SetSplit(options.prefill_workers);
  truth_ = {.workers = &workers_, .times = times};
  StartRouters(make_policy);
}

SimulatedFleet::~SimulatedFleet() = default;

void SimulatedFleet::StartRouters(const MakePolicy& make_policy) {
  for (int32_t i = 0; i < options_.routers; ++i) {
    routers_.push_back(std::make_unique<Router>());
    const RouterOptions router_options = OptionsOf(options_, i);
    routers_.back()->core = std::make_unique<RouterCore>(router_options, &clock_);
    if (!make_policy) continue;
    routers_.back()->core->set_policy(make_policy(router_options.routing, truth_));
  }
  for (int32_t i = 0; i < options_.workers; ++i) Heartbeat(i);
  for (const std::unique_ptr<Router>& router : routers_) {
    router->core->Tick();
    for (int32_t i = 0; i < options_.workers; ++i) {
      const WorkerNumber number(static_cast<uint32_t>(i + 1));
      CHECK(router->core->index().Take(number, {.epoch = Epoch(1), .events = {}}).ok());
    }
  }
}

// ---- what routers hear --------------------------------------------------------------------------

WorkerReport SimulatedFleet::ReportOf(int32_t worker) const {
  const SimulatedWorker& it = *workers_[static_cast<size_t>(worker)];
  WorkerReport report;
  report.id = absl::StrCat("worker-", worker);
  report.address = report.id;
  report.epoch = Epoch(1);
  report.model = report.fingerprint = "model";
  report.role = roles_[static_cast<size_t>(worker)];
  report.changes_role = true;
  report.queued = it.queued();
  report.waiting = it.waiting();
  report.prompt_tokens_left = it.prompt_tokens_left();
  report.block_size = options_.worker.block_size;
  report.available_blocks = it.available_blocks();
  report.pool_tokens = options_.worker.pool_tokens;
  report.max_running = options_.worker.scheduler.max_running;
  report.kv_bytes_per_token = times_->profile().kv_bytes_per_token;
  return report;
}

void SimulatedFleet::Heartbeat(int32_t worker) {
  WorkerReport report = ReportOf(worker);
  report.decode_tokens_per_s = DecodeTokensPerS(worker);
  report.routers = options_.routers;
  for (int32_t i = 0; i < options_.routers; ++i) {
    report.router_place = i;
    CHECK(routers_[static_cast<size_t>(i)]->core->Heartbeat(report).ok());
  }
}

void SimulatedFleet::TellBacklogs() {
  for (int32_t i = 0; i < options_.workers; ++i) {
    if (backlog_news_[static_cast<size_t>(i)].Changed(At(i).prompt_tokens_left())) Heartbeat(i);
  }
}

double SimulatedFleet::DecodeTokensPerS(int32_t worker) {
  constexpr int64_t kMeanOverUs = 5'000'000;
  auto& counts = generated_[static_cast<size_t>(worker)];
  counts.emplace_back(NowUs(), At(worker).generated_tokens());
  while (counts.size() > 2 && counts[1].first <= NowUs() - kMeanOverUs) counts.pop_front();
  const auto us = static_cast<double>(counts.back().first - counts.front().first);
  const auto tokens = static_cast<double>(counts.back().second - counts.front().second);
  return us > 0 ? tokens / us * 1e6 : 0;
}

void SimulatedFleet::Tick() {
  if (options_.routers > 1) TellBacklogs();
  for (const std::unique_ptr<Router>& router : routers_) router->core->Tick();
  PlanRoles();
}

// ---- roles --------------------------------------------------------------------------------------

void SimulatedFleet::SetSplit(int32_t prefill_workers) {
  const bool separate = prefill_workers > 0 || options_.separate_roles;
  roles_.assign(workers_.size(), separate ? WorkerRole::kDecode : WorkerRole::kBoth);
  std::fill_n(roles_.begin(), prefill_workers, WorkerRole::kPrefill);
}

void SimulatedFleet::SetRole(int32_t worker, WorkerRole role) {
  roles_[static_cast<size_t>(worker)] = role;
  figures_.role_changes.push_back({.at_us = NowUs(), .worker = worker});
  Heartbeat(worker);
}

void SimulatedFleet::PlanRoles() {
  if (!planning_.LookIsDue(clock_.NowUs())) return;
  RouterCore& core = *routers_.front()->core;
  const std::optional<RoleCall> call =
      planning_.Look(clock_.NowUs(), core.Workers(), core.TakeRoleLoad());
  const RoleWish& wish = planning_.wish();
  figures_.wanted_prefill_workers = wish.known ? wish.wanted_prefill_workers : -1;
  if (call) MakeRoleCall(*call);
}

void SimulatedFleet::MakeRoleCall(const RoleCall& call) {
  Add(options_.call_us, [this, call] {
    const std::vector<WorkerRecord> workers = routers_.front()->core->Workers();
    const auto called = std::find_if(workers.begin(), workers.end(), [&](const auto& worker) {
      return worker.report.id == call.worker_id;
    });
    CHECK(called != workers.end());
    if (call.role) SetRole(WorkerOf(called->number), *call.role);
    if (const auto next = planning_.OnAnswer(clock_.NowUs(), absl::OkStatus())) MakeRoleCall(*next);
  });
}

void SimulatedFleet::Publish(int32_t worker) {
  std::vector<std::string> batches = At(worker).TakeKvEvents();
  if (batches.empty()) return;
  uint64_t& last = published_[static_cast<size_t>(worker)];
  const uint64_t first = last + 1;
  last += batches.size();
  const auto shared = std::make_shared<const std::vector<std::string>>(std::move(batches));
  Add(options_.event_us, [this, worker, first, shared] {
    const WorkerNumber number(static_cast<uint32_t>(worker + 1));
    for (const std::unique_ptr<Router>& router : routers_) {
      uint64_t sequence = first;
      for (const std::string& batch : *shared) {
        const KvEventMessage message{.epoch = Epoch(1), .sequence = sequence++, .events = batch};
        CHECK(router->core->index().Take(number, message).ok());
      }
    }
  });
}

// ---- workers ------------------------------------------------------------------------------------

void SimulatedFleet::Wake(int32_t worker) {
  if (At(worker).stepping()) return;
  const int64_t us = At(worker).BeginStep();
  if (us > 0) Add(us, [this, worker] { StepEnded(worker); });
  for (const uint64_t request : At(worker).TakeRooms()) {
    if (const auto it = calls_.find(request); it != calls_.end()) it->second->OnRoomForKv();
  }
}

void SimulatedFleet::StepEnded(int32_t worker) {
  const auto window = static_cast<size_t>(NowUs() / kWindowUs);
  if (window >= windows_.size()) {
    windows_.resize(window + 1, std::vector<double>(workers_.size()));
  }
  windows_[window][static_cast<size_t>(worker)] += At(worker).step_work_us();
  for (const SimulatedWorker::StepEvent& event : At(worker).EndStep()) {
    const auto it = calls_.find(event.request);
    if (it == calls_.end()) continue;               // it was given up
    const std::shared_ptr<Call> call = it->second;  // it may end
    call->OnStep(worker, event);
  }
  Publish(worker);
  Wake(worker);
}

// ---- requests -----------------------------------------------------------------------------------

void SimulatedFleet::Send(DueRequest due) {
  last_intended_us_ = std::max(last_intended_us_, due.intended_us);
  const auto order = static_cast<size_t>(due.order);
  if (order >= records_.size()) {
    records_.resize(order + 1);
    figures_.prefilled_by.resize(order + 1, -1);
  }
  ++figures_.requests;
  Router* const router = routers_[order % routers_.size()].get();
  const auto call = std::make_shared<Call>(this, router, std::move(due));
  calls_.emplace(call->id(), call);
  call->Start();
}

void SimulatedFleet::Ended(Call& call) {
  const DueRequest& due = call.due();
  const AnswerContent content = call.Content();
  records_[static_cast<size_t>(due.order)] = call.timer().TakeRecord();
  if (options_.keeps_least_work) KeepHashes(call.Hashes());
  run_->OnEnd(due.request, content, NowUs());
  calls_.erase(call.id());
}

// Prefix hashes are chained, so the known ones are at the beginning.
int32_t SimulatedFleet::KnownTokens(std::span<const Hash128> hashes) const {
  size_t known = 0;
  while (known < hashes.size() && known_hashes_.contains(hashes[known])) ++known;
  return static_cast<int32_t>(known) * kUnitsPerHash;
}

void SimulatedFleet::KeepHashes(std::span<const Hash128> hashes) {
  known_hashes_.insert(hashes.begin(), hashes.end());
}

void SimulatedFleet::NoteLeastWork(const DueRequest& due, std::span<const Hash128> hashes,
                                   int32_t prompt_tokens) {
  figures_.least_work.push_back({.at_us = due.intended_us,
                                 .prompt_tokens = prompt_tokens,
                                 .cached_tokens = std::min(KnownTokens(hashes), prompt_tokens - 1),
                                 .output_tokens = due.request.output_tokens});
  KeepHashes(hashes);
}

void SimulatedFleet::Add(int64_t in_us, std::function<void()> happen) {
  events_.push({.at_us = NowUs() + in_us, .order = order_++, .happen = std::move(happen)});
}

std::vector<RequestRecord> SimulatedFleet::Run(LoadRun& run) {
  run_ = &run;
  for (const RoleSplit& split : options_.role_splits) {
    Add(split.at_us, [this, split] {
      SetSplit(split.prefill_workers);
      for (int32_t i = 0; i < options_.workers; ++i) Heartbeat(i);
    });
  }
  const int64_t began_us = wall_ == nullptr ? 0 : wall_->NowUs();
  int64_t next_tick_us = kTickUs;
  // Heartbeats are spread over their interval.
  int64_t heartbeats = 0;
  const auto next_heartbeat_us = [&] {
    return (heartbeats + 1) * options_.heartbeat_us / options_.workers;
  };
  while (!run.finished()) {
    const int64_t due_us = run.NextDueUs().value_or(INT64_MAX);
    const int64_t event_us = events_.empty() ? INT64_MAX : events_.top().at_us;
    const int64_t next_us = std::min(due_us, event_us);
    if (next_us == INT64_MAX) {  // nothing can happen any more
      const auto first =
          std::min_element(calls_.begin(), calls_.end(),
                           [](const auto& a, const auto& b) { return a.first < b.first; });
      const std::shared_ptr<Call> call = first->second;  // it ends
      call->GiveUp();
      continue;
    }
    ++figures_.events;
    if (next_heartbeat_us() < next_us) {
      clock_.AdvanceUs(std::max<int64_t>(0, next_heartbeat_us() - NowUs()));
      Heartbeat(static_cast<int32_t>(heartbeats++ % options_.workers));
    } else if (next_tick_us < next_us) {
      clock_.AdvanceUs(std::max<int64_t>(0, next_tick_us - NowUs()));
      Tick();
      next_tick_us += kTickUs;
    } else if (due_us <= event_us) {
      clock_.AdvanceUs(std::max<int64_t>(0, due_us - NowUs()));
      if (std::optional<DueRequest> due = run.TakeDue(NowUs())) Send(*std::move(due));
    } else {
      const Event event = events_.top();
      events_.pop();
      clock_.AdvanceUs(event.at_us - NowUs());
      event.happen();
    }
  }
  if (wall_ != nullptr) figures_.running_s = static_cast<double>(wall_->NowUs() - began_us) / 1e6;
  FillLoads();
  return std::move(records_);
}

// ---- figures ------------------------------------------------------------------------------------

int32_t SimulatedFleet::Holders(std::span<const TokenId> prompt) const {
  const int32_t block_size = options_.worker.block_size;
  // A match ends one token before the prompt's end.
  const auto whole = static_cast<int32_t>(prompt.size() - 1) / block_size * block_size;
  return static_cast<int32_t>(
      std::count_if(workers_.begin(), workers_.end(),
                    [&](const auto& worker) { return worker->CachedTokens(prompt) >= whole; }));
}

void SimulatedFleet::FillLoads() {
  std::vector<double> loads;
  for (const std::unique_ptr<SimulatedWorker>& worker : workers_) {
    loads.push_back(worker->work_us());
    figures_.preemptions += worker->preemptions();
  }
  // Workers whose roles change belong to one pool.
  const bool is_fixed = figures_.role_changes.empty() && options_.role_splits.empty();
  const auto border = static_cast<size_t>(is_fixed ? options_.prefill_workers : 0);
  figures_.max_over_mean_load = MaxOverMean(loads, border);
  // Windows after the last arrival only drain, so they do not count.
  const size_t count = std::clamp<size_t>(static_cast<size_t>(last_intended_us_ / kWindowUs), 1,
                                          std::max<size_t>(1, windows_.size()));
  for (size_t i = 0; i < std::min(count, windows_.size()); ++i) {
    figures_.window_max_over_mean_load +=
        MaxOverMean(windows_[i], border) / static_cast<double>(count);
  }
}

}  // namespace baton
