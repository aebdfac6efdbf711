#include "router/grpc/role_changer.h"

#include <functional>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/printable_text.h"
#include "rpc/channel.h"
#include "text/utf8.h"

namespace baton {
namespace {

constexpr int64_t kCallTimeoutMs = 5000;

v1::WorkerRole RoleToWire(const std::optional<WorkerRole>& role) {
  if (!role) return v1::WORKER_ROLE_UNSPECIFIED;
  switch (*role) {
    case WorkerRole::kPrefill:
      return v1::WORKER_ROLE_PREFILL;
    case WorkerRole::kDecode:
      return v1::WORKER_ROLE_DECODE;
    case WorkerRole::kBoth:
      return v1::WORKER_ROLE_BOTH;
  }
  return v1::WORKER_ROLE_UNSPECIFIED;
}

}  // namespace

RoleChanger::RoleChanger(const RolePlanningOptions& options, std::string name, RouterCore* core,
                         WorkerChannels* channels, const Clock* clock)
    : name_(std::move(name)), core_(core), channels_(channels), clock_(clock), planning_(options) {}

RoleChanger::~RoleChanger() {
  std::unique_lock lock(mutex_);
  stopping_ = true;
  if (call_ != nullptr) call_->Cancel();
  changed_.wait(lock, [this] { return call_ == nullptr; });
}

void RoleChanger::Tick() {
  {
    std::lock_guard lock(mutex_);
    if (!planning_.LookIsDue(clock_->NowUs())) return;
  }
  const RoleLoad load = core_->TakeRoleLoad();
  const std::vector<WorkerRecord> workers = core_->Workers();
  std::lock_guard lock(mutex_);
  const std::optional<RoleCall> call = planning_.Look(clock_->NowUs(), workers, load);
  LogWish();
  if (call) Begin(*call);
}

void RoleChanger::LogWish() {
  const RoleWish& wish = planning_.wish();
  const std::string due = wish.flip ? DescribeFlip(*wish.flip) : "";
  if (due == logged_) return;
  logged_ = due;
  if (due.empty()) return;
  LOG(INFO) << "role planner: " << Printable(due)
            << (planning_.mode() == RolePlannerMode::kAdvise ? " is advised: " : ": ")
            << wish.reason;
}

void RoleChanger::Begin(const RoleCall& call) {
  v1::SetRoleRequest request;
  request.set_role(RoleToWire(call.role));
  request.set_planner(name_);
  request.set_lease_ms(call.lease_ms);
  const auto begin = [](v1::Worker::Stub& stub, grpc::ClientContext* context,
                        const v1::SetRoleRequest* wire, v1::SetRoleResponse* response,
                        std::function<void(grpc::Status)> done) {
    stub.async()->SetRole(context, wire, response, std::move(done));
  };
  call_ = SetRoleCall::Start(
      v1::Worker::NewStub(channels_->Get(call.address, call.epoch)), std::move(request),
      DeadlineIn(kCallTimeoutMs), begin,
      [this](const absl::Status& status, const v1::SetRoleResponse&) { OnAnswer(status); });
}

void RoleChanger::OnAnswer(const absl::Status& status) {
  std::lock_guard lock(mutex_);  // Begin has set call_ before
  call_.reset();
  if (!stopping_) {
    const std::string before = planning_.trouble();
    const std::optional<RoleCall> next = planning_.OnAnswer(clock_->NowUs(), status);
    if (!planning_.trouble().empty() && planning_.trouble() != before) {
      LOG(WARNING) << "role planner: " << Printable(planning_.trouble());
    }
    if (next) Begin(*next);
  }
  if (call_ == nullptr) changed_.notify_all();
}

v1::RolePlan RoleChanger::Status() const {
  v1::RolePlan out;
  std::lock_guard lock(mutex_);
  if (planning_.mode() == RolePlannerMode::kOff) return out;
  const RoleWish& wish = planning_.wish();
  out.set_mode(planning_.mode() == RolePlannerMode::kAdvise ? "advise" : "apply");
  out.set_known(wish.known);
  out.set_prefill_demand(wish.prefill_demand);
  out.set_decode_demand(wish.decode_demand);
  out.set_prefill_workers(wish.prefill_workers);
  out.set_decode_workers(wish.decode_workers);
  out.set_both_workers(wish.both_workers);
  out.set_wanted_prefill_workers(wish.wanted_prefill_workers);
  out.set_wanted_prefill_share(wish.wanted_prefill_share());
  out.set_use(wish.use);
  out.set_wanted_use(wish.wanted_use);
  out.set_reason(wish.reason);
  if (wish.flip) out.set_next(ReplaceInvalidUtf8(DescribeFlip(*wish.flip)));
  out.set_flips(planning_.flips());
  if (planning_.last_flip()) {
    out.set_last_flip(ReplaceInvalidUtf8(DescribeFlip(*planning_.last_flip())));
    out.set_last_flip_ms((clock_->NowUs() - planning_.last_flip_us()) / 1000);
  }
  out.set_trouble(ReplaceInvalidUtf8(planning_.trouble()));
  return out;
}

}  // namespace baton
