#include "router/request_flow.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace baton {

using Kind = FlowAction::Kind;

const char* FlowActionName(FlowAction::Kind kind) {
  switch (kind) {
    case Kind::kChooseRoute:
      return "choose-route";
    case Kind::kSendStarted:
      return "send-started";
    case Kind::kPull:
      return "pull";
    case Kind::kCancelPull:
      return "cancel-pull";
    case Kind::kOpenDecode:
      return "open-decode";
    case Kind::kSendPrefill:
      return "send-prefill";
    case Kind::kForwardTokens:
      return "forward-tokens";
    case Kind::kForwardFinished:
      return "forward-finished";
    case Kind::kPrefillLocally:
      return "prefill-locally";
    case Kind::kCancelDecode:
      return "cancel-decode";
    case Kind::kCancelPrefill:
      return "cancel-prefill";
    case Kind::kAwaitReport:
      return "await-report";
    case Kind::kFinish:
      return "finish";
    case Kind::kFail:
      return "fail";
  }
  return "unknown";
}

RequestFlow::Actions RequestFlow::Start(Placement placement, bool hand_offs_queue) {
  if (state_ != State::kNew) return {};
  hand_offs_queue_ = hand_offs_queue;
  asked_placement_ = placement_ = placement;
  state_ = State::kRouting;
  return {{.kind = Kind::kChooseRoute}};
}

RequestFlow::Actions RequestFlow::OnRoute(const RoutePlan& plan) {
  if (state_ != State::kRouting) return {};
  plan_ = plan;
  prefill_ = PrefillState::kNone;
  tokens_in_attempt_ = prompt_is_there_ = false;
  ++attempt_;
  Actions actions;
  if (!started_sent_) actions.push_back({.kind = Kind::kSendStarted});
  started_sent_ = true;
  if (plan.pull) {
    state_ = State::kPulling;
    actions.push_back({.kind = Kind::kPull, .attempt = attempt_, .worker = plan.prefiller()});
  } else {
    actions.push_back(OpenDecode());
  }
  return actions;
}

RequestFlow::Actions RequestFlow::OnPullEnded(int32_t attempt) {
  if (state_ != State::kPulling || attempt != attempt_) return {};
  return {OpenDecode()};
}

FlowAction RequestFlow::OpenDecode() {
  state_ = State::kDecoding;
  decode_open_ = true;
  return {.kind = Kind::kOpenDecode,
          .attempt = attempt_,
          .worker = plan_.decode,
          .remote_prefill = plan_.prefill.has_value(),
          .queues_for_kv = plan_.prefill.has_value() && queues_for_kv()};
}

RequestFlow::Actions RequestFlow::OnNoRoute(absl::Status status) {
  if (state_ != State::kRouting) return {};
  if (MayQueue()) return Queue();
  // The last worker's refusal says more than the error that no other worker is left.
  return Fail(ForClient(last_refusal_.ok() ? status : last_refusal_));
}

RequestFlow::Actions RequestFlow::OnTicket(int32_t attempt) {
  if (!Current(attempt)) return {};
  if (!plan_.prefill || prefill_ != PrefillState::kNone) {
    return Fail(
        absl::InternalError("the decode worker sent a ticket that the router did not expect"));
  }
  prefill_ = PrefillState::kOpen;
  return {{.kind = Kind::kSendPrefill,
           .attempt = attempt_,
           .worker = *plan_.prefill,
           .queues_for_kv = queues_for_kv()}};
}

RequestFlow::Actions RequestFlow::OnTokens(int32_t attempt) {
  if (!Current(attempt)) return {};
  tokens_forwarded_ = tokens_in_attempt_ = prompt_is_there_ = true;
  return {{.kind = Kind::kForwardTokens}};
}

// A choice that had all its tokens from an earlier worker may end before the KV of the others has
// come.
RequestFlow::Actions RequestFlow::OnChoiceFinished(int32_t attempt) {
  if (!Current(attempt)) return {};
  tokens_forwarded_ = tokens_in_attempt_ = true;
  return {{.kind = Kind::kForwardFinished, .attempt = attempt_}};
}

RequestFlow::Actions RequestFlow::OnDecodeFinished(int32_t attempt) {
  if (!Current(attempt)) return {};
  decode_open_ = false;
  const bool await_report = prefill_ == PrefillState::kOpen;
  state_ = await_report ? State::kAwaitingReport : State::kEnded;
  return {{.kind = Kind::kCancelDecode, .attempt = attempt_},
          {.kind = await_report ? Kind::kAwaitReport : Kind::kFinish}};
}

RequestFlow::Actions RequestFlow::OnDecodeFailed(int32_t attempt, absl::Status status) {
  if (!Current(attempt)) return {};
  decode_open_ = false;
  if (status.ok()) {
    status = absl::UnavailableError("the decode worker ended its stream without finishing");
  }
  if (absl::IsCancelled(status)) {  // the router did not cancel, so the worker is shutting down
    status = absl::UnavailableError("the decode worker ended the request");
  }
  // The worker's words and those of the call itself, which has the same deadline, become one.
  if (absl::IsDeadlineExceeded(status)) {
    status = absl::DeadlineExceededError("the request's deadline has passed");
  }
  return TryAnother(std::move(status));
}

// `status` is the reason for giving up this attempt's decode worker.
RequestFlow::Actions RequestFlow::TryAnother(absl::Status status) {
  if (!WorthAnotherWorker(status)) return Fail(ForClient(status));
  if (tokens_in_attempt_) {
    Resume();
  } else {
    ++failures_;
  }
  if (absl::IsUnavailable(status)) refused_hand_off_.erase(plan_.decode);
  if (plan_.prefill && absl::IsResourceExhausted(status)) {
    lacked_room_ = true;
    refused_hand_off_.insert(plan_.decode);
  }
  // If a worker died while a request was queued there, the other workers may still queue it.
  const bool refused_locally = queueing_ == Queueing::kLocally && !absl::IsUnavailable(status);
  const bool last_attempt = refused_locally || failures_ >= MostFailures();
  if (last_attempt && !MayQueue()) return Fail(ForClient(status));
  Actions actions;
  CancelOpenCalls(actions);
  excluded_.insert(plan_.decode);
  last_refusal_ = std::move(status);
  state_ = State::kRouting;
  if (last_attempt) {
    for (FlowAction& action : Queue()) actions.push_back(std::move(action));
  } else {
    actions.push_back({.kind = Kind::kChooseRoute});
  }
  return actions;
}

bool RequestFlow::MayLoseDecode() const {
  if (state_ != State::kDecoding) return false;
  return tokens_in_attempt_ ? lost_workers_ < max_resumes_ : failures_ + 1 < MostFailures();
}

bool RequestFlow::WorthAnotherWorker(const absl::Status& status) const {
  if (tokens_in_attempt_ && lost_workers_ >= max_resumes_) return false;
  if (absl::IsUnavailable(status)) return true;
  if (tokens_in_attempt_) return false;
  // If a worker refuses as invalid what another worker had accepted, it is too small for the
  // request or has other limits.
  return absl::IsResourceExhausted(status) ||
         (tokens_forwarded_ && absl::IsInvalidArgument(status));
}

absl::Status RequestFlow::ForClient(const absl::Status& status) const {
  const bool refusal = absl::IsUnavailable(status) || absl::IsResourceExhausted(status) ||
                       absl::IsInvalidArgument(status);
  if (!tokens_forwarded_ || tokens_in_attempt_ || !refusal) return status;
  return absl::UnavailableError(absl::StrCat(
      "the decode worker was lost, and no other worker resumed the answer: ", status.message()));
}

void RequestFlow::Resume() {
  ++lost_workers_;
  failures_ = 0;
  placement_ = asked_placement_;
  queueing_ = Queueing::kNone;
  excluded_.clear();
  lacked_room_ = false;
  refused_hand_off_.clear();
}

int32_t RequestFlow::MostFailures() const {
  switch (queueing_) {
    case Queueing::kNone:
      return max_attempts_;
    case Queueing::kForKv:
      return 2 * max_attempts_;
    case Queueing::kLocally:
      return 3 * max_attempts_;
  }
  return 0;
}

bool RequestFlow::MayQueue() const {
  if (!lacked_room_ || queueing_ == Queueing::kLocally) return false;
  return placement_ != Placement::kRemote || (queueing_ == Queueing::kNone && hand_offs_queue_);
}

RequestFlow::Actions RequestFlow::Queue() {
  const bool for_kv = queueing_ == Queueing::kNone && hand_offs_queue_;
  queueing_ = for_kv ? Queueing::kForKv : Queueing::kLocally;
  if (!for_kv) placement_ = Placement::kLocal;
  for (const WorkerNumber worker : refused_hand_off_) excluded_.erase(worker);
  return {{.kind = Kind::kChooseRoute}};
}

RequestFlow::Actions RequestFlow::OnPrefillDone(int32_t attempt) {
  if (attempt != attempt_ || prefill_ != PrefillState::kOpen || ended()) return {};
  prefill_ = PrefillState::kReported;
  if (state_ != State::kAwaitingReport) return {};
  state_ = State::kEnded;
  return {{.kind = Kind::kFinish}};
}

RequestFlow::Actions RequestFlow::OnPrefillFailed(int32_t attempt, absl::Status) {
  if (attempt != attempt_ || prefill_ != PrefillState::kOpen || ended()) return {};
  prefill_ = PrefillState::kLocal;
  if (state_ == State::kAwaitingReport) {  // the KV has arrived; only the report is missing
    state_ = State::kEnded;
    return {{.kind = Kind::kFinish}};
  }
  if (state_ != State::kDecoding || prompt_is_there_) return {};
  return {{.kind = Kind::kPrefillLocally, .attempt = attempt_, .worker = plan_.decode}};
}

RequestFlow::Actions RequestFlow::OnPrefillLocallyDone(int32_t attempt, absl::Status status) {
  if (!Current(attempt) || status.ok() || absl::IsNotFound(status)) return {};
  const std::string message = absl::StrCat(
      "the prefill failed, and the decode worker could not compute the prompt either: ",
      status.message());
  // Both calls have the request's own deadline.
  if (absl::IsDeadlineExceeded(status)) return Fail(absl::DeadlineExceededError(message));
  // A worker that cannot be reached is gone, though its stream may not have ended yet.
  absl::Status failure = absl::UnavailableError(message);
  return absl::IsUnavailable(status) ? TryAnother(std::move(failure)) : Fail(std::move(failure));
}

RequestFlow::Actions RequestFlow::OnReportOverdue() {
  if (state_ != State::kAwaitingReport) return {};
  Actions actions;
  CancelOpenCalls(actions);
  state_ = State::kEnded;
  actions.push_back({.kind = Kind::kFinish});
  return actions;
}

RequestFlow::Actions RequestFlow::OnClientGone(absl::Status status) {
  if (ended()) return {};
  return Fail(std::move(status));
}

void RequestFlow::CancelOpenCalls(Actions& actions) {
  if (state_ == State::kPulling)
    actions.push_back({.kind = Kind::kCancelPull, .attempt = attempt_});
  if (decode_open_) actions.push_back({.kind = Kind::kCancelDecode, .attempt = attempt_});
  decode_open_ = false;
  if (prefill_ == PrefillState::kOpen) {
    actions.push_back({.kind = Kind::kCancelPrefill, .attempt = attempt_});
    prefill_ = PrefillState::kNone;
  }
}

RequestFlow::Actions RequestFlow::Fail(absl::Status status) {
  Actions actions;
  CancelOpenCalls(actions);
  state_ = State::kEnded;
  actions.push_back({.kind = Kind::kFail, .status = std::move(status)});
  return actions;
}

}  // namespace baton
