#include "tests/sim/excuses.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

constexpr int64_t kPromptUs = 3'000'000;  // a dead peer is found in 1 s; the rest is work
constexpr int64_t kChoiceUs = 250'000;    // more of it for each choice beside a request's first
constexpr int64_t kWorkerDrainUs = 5'000'000;
constexpr int64_t kBreaksCallsUs = SimNode::kKeepaliveUs - 1'000'000;

constexpr int32_t kManyRequests = 16;  // more than any scenario has

}  // namespace

bool Excuses::Decodes(int32_t node) const {
  return node >= kFirstWorkerNode &&
         scenario_.workers[static_cast<size_t>(node - kFirstWorkerNode)].role !=
             WorkerRole::kPrefill;
}

bool Excuses::QueuesAreShort() const {
  return std::any_of(
      scenario_.workers.begin(), scenario_.workers.end(), [](const SimWorker::Options& worker) {
        return worker.role != WorkerRole::kPrefill && (worker.max_active_requests < kManyRequests ||
                                                       worker.engine.max_waiting < kManyRequests);
      });
}

// An answer goes on wherever a decode worker is left, however its pool is cut.
bool Excuses::NobodyGoesOn() const {
  if (lost_.empty()) return false;
  for (size_t i = 0; i < scenario_.workers.size(); ++i) {
    const int32_t node = kFirstWorkerNode + static_cast<int32_t>(i);
    if (Decodes(node) && !lost_.contains(node)) return false;
  }
  return true;
}

void Excuses::LoseDecodeWorker(int32_t node) {
  lost_.insert(node);
  if (static_cast<int32_t>(lost_.size()) >= scenario_.decode_workers()) calls_may_fail_ = true;
}

void Excuses::OnMessageFault(const Fault& fault, MessageKind message, int32_t from, int32_t to) {
  if (message == MessageKind::kEvents) return;  // nobody waits for them
  if (fault.kind == FaultKind::kDelay) delays_us_ += fault.duration_us;
  if (message == MessageKind::kStream || fault.kind == FaultKind::kDuplicate) return;
  const int32_t worker = from >= kFirstWorkerNode ? from : to;
  if (message == MessageKind::kHeartbeat) {
    if (Decodes(worker)) LoseDecodeWorker(worker);
  } else if (fault.kind == FaultKind::kReset) {
    if (worker < kFirstWorkerNode) calls_may_fail_ = true;  // a client's
    if (Decodes(worker)) LoseDecodeWorker(worker);
  }
}

void Excuses::OnPathFault(const Fault& fault) {
  const bool long_enough = fault.duration_us >= kBreaksCallsUs;
  for (const auto& [one, other] : {std::pair(fault.node, fault.other), {fault.other, fault.node}}) {
    if (one != kRouterNode) continue;
    if (Decodes(other)) LoseDecodeWorker(other);
    if (other == kClientNode && long_enough) calls_may_fail_ = true;
  }
}

void Excuses::OnFault(const Fault& fault) {
  if (fault.kind == FaultKind::kClockJump) {
    clocks_jump_ = clocks_jump_ || Decodes(fault.node);
    // The router forgets workers whose last word is suddenly long ago.
    calls_may_fail_ = calls_may_fail_ || fault.node == kRouterNode;
    return;
  }
  delays_us_ += fault.duration_us + (fault.kind == FaultKind::kTerminate ? kWorkerDrainUs : 0);
  if (fault.kind == FaultKind::kPartition || fault.kind == FaultKind::kOneWayPartition) {
    return OnPathFault(fault);
  }
  if (fault.node == kRouterNode) calls_may_fail_ = true;
  if (Decodes(fault.node)) LoseDecodeWorker(fault.node);
}

bool Excuses::Excused(const ScenarioRequest& request, const End& end) const {
  const bool remote_demanded = request.request.placement == Placement::kRemote;
  switch (end.status.code()) {
    case absl::StatusCode::kOk:
      return true;
    case absl::StatusCode::kCancelled:
      return request.cancel_after_us > 0 || request.cancel_after_messages > 0;
    case absl::StatusCode::kDeadlineExceeded:
      return end.deadline_passed || clocks_jump_;
    case absl::StatusCode::kResourceExhausted:
      return request.read_us > 0 || remote_demanded || calls_may_fail_ || QueuesAreShort();
    case absl::StatusCode::kUnavailable:
      return calls_may_fail_ || remote_demanded || (QueuesAreShort() && !lost_.empty()) ||
             (end.had_tokens && NobodyGoesOn());
    default:
      return false;
  }
}

absl::Status Excuses::Judge(const ScenarioRequest& request, const End& end) const {
  if (!Excused(request, end)) {
    return absl::InternalError(
        absl::StrCat("no fault of this run excuses ", end.status.ToString()));
  }
  int64_t excused_us = kPromptUs + delays_us_;
  for (const ScenarioRequest& other : scenario_.requests) {
    excused_us += kChoiceUs * (other.request.n - 1);
  }
  if (end.took_us > excused_us) {
    return absl::InternalError(
        absl::StrCat("took ", end.took_us, " us, this run's faults excuse ", excused_us));
  }
  return absl::OkStatus();
}

}  // namespace baton
