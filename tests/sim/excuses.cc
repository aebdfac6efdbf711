#include "tests/sim/excuses.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "router/router_core.h"

namespace baton {
namespace {

constexpr int64_t kPromptUs = 2'000'000;     // time for the work itself
constexpr int64_t kLossFoundUs = 1'000'000;  // detection of a lost peer; another worker computes
constexpr int64_t kChoiceUs = 250'000;       // extra time for each choice after the first
constexpr int64_t kWorkerDrainUs = 5'000'000;
constexpr int64_t kBreaksCallsUs = SimNode::kKeepaliveUs - 1'000'000;
// A returning worker gets its id back with its next heartbeat, 2 s after its last one.
constexpr int64_t kRecoveryUs = 4'000'000;

}  // namespace

const SimWorker::Options& Excuses::WorkerAt(int32_t node) const {
  return scenario_.workers[static_cast<size_t>(node - kFirstWorkerNode)];
}

bool Excuses::Decodes(int32_t node) const {
  return node >= kFirstWorkerNode && WorkerAt(node).role != WorkerRole::kPrefill;
}

void Excuses::Lose(int32_t node, const Span& away) {
  if (node >= kFirstWorkerNode) losses_.push_back({node, away});
}

void Excuses::OnMessageFault(const Fault& fault, MessageKind message, int32_t from, int32_t to,
                             int64_t now_us) {
  if (message == MessageKind::kEvents) return;  // no request waits for them
  if (fault.kind == FaultKind::kDelay) delays_.push_back({now_us, now_us + fault.duration_us});
  if (message == MessageKind::kStream) {
    const bool damages = fault.kind == FaultKind::kTruncate || fault.kind == FaultKind::kFlip;
    if (damages) damaged_streams_.push_back({now_us, now_us});
    return;
  }
  if (fault.kind == FaultKind::kDuplicate) return;
  const int32_t worker = from >= kFirstWorkerNode ? from : to;
  const Span away = {
      now_us, now_us + (fault.kind == FaultKind::kDelay ? fault.duration_us : 0) + kRecoveryUs};
  if (message == MessageKind::kHeartbeat) {
    Lose(worker, away);
  } else if (fault.kind == FaultKind::kReset) {
    if (worker < kFirstWorkerNode) failing_.push_back({now_us, now_us});  // a client's call
    Lose(worker, away);
  }
}

void Excuses::OnPathFault(const Fault& fault, const Span& away) {
  const bool long_enough = fault.duration_us >= kBreaksCallsUs;
  for (const auto& [one, other] : {std::pair(fault.node, fault.other), {fault.other, fault.node}}) {
    if (one != kRouterNode) continue;
    Lose(other, away);
    if (other == kClientNode && long_enough) failing_.push_back(away);
  }
}

bool Excuses::IsWaitedFor(const Fault& fault) const {
  const auto needed = [this](int32_t node) { return node < kFirstWorkerNode || Decodes(node); };
  const bool of_a_path =
      fault.kind == FaultKind::kPartition || fault.kind == FaultKind::kOneWayPartition;
  if (!of_a_path) return needed(fault.node);
  return fault.node < kFirstWorkerNode || fault.other < kFirstWorkerNode;
}

void Excuses::OnFault(const Fault& fault, int64_t now_us) {
  if (fault.kind == FaultKind::kClockJump) {
    if (Decodes(fault.node)) clock_jumps_.push_back({now_us, now_us});
    // To the router, the last heartbeats are suddenly old, so it forgets the workers.
    if (fault.node == kRouterNode) failing_.push_back({now_us, now_us + kRecoveryUs});
    return;
  }
  const int64_t drain_us = fault.kind == FaultKind::kTerminate ? kWorkerDrainUs : 0;
  const int64_t over_us = now_us + fault.duration_us + drain_us;
  delays_.push_back(
      {now_us, IsWaitedFor(fault) ? over_us : std::min(over_us, now_us + kLossFoundUs)});
  const Span away = {now_us, over_us + kRecoveryUs};
  if (fault.kind == FaultKind::kPartition || fault.kind == FaultKind::kOneWayPartition) {
    const bool of_hand_offs = fault.node >= kFirstWorkerNode && fault.other >= kFirstWorkerNode;
    if (of_hand_offs) broken_hand_offs_.push_back({now_us, over_us});
    return OnPathFault(fault, away);
  }
  if (fault.node == kRouterNode) {
    failing_.push_back(away);
  }
  Lose(fault.node, away);
}

bool Excuses::Meets(const Spans& spans, const Span& life) {
  return std::any_of(spans.begin(), spans.end(), [&](const Span& span) {
    return span.from_us <= life.until_us && life.from_us <= span.until_us;
  });
}

int32_t Excuses::Lost(bool decode, const ScenarioRequest& request, const Span& life) const {
  const bool counts_all = !Takes(scenario_, request);
  const WorkerRole other = decode ? WorkerRole::kPrefill : WorkerRole::kDecode;
  std::set<int32_t> lost;
  for (const Loss& loss : losses_) {
    const SimWorker::Options& worker = WorkerAt(loss.node);
    if (worker.role == other || !Meets({loss.span}, life)) continue;
    if (counts_all || TakesPrompt(worker, request)) lost.insert(loss.node);
  }
  return static_cast<int32_t>(lost.size());
}

int32_t Excuses::Decoders(const ScenarioRequest& request) const {
  const bool counts_all = !Takes(scenario_, request);
  return static_cast<int32_t>(std::count_if(
      scenario_.workers.begin(), scenario_.workers.end(), [&](const SimWorker::Options& worker) {
        return worker.role != WorkerRole::kPrefill && (counts_all || TakesPrompt(worker, request));
      }));
}

bool Excuses::IsRefused(const ScenarioRequest& request, const Span& life) const {
  if (!Takes(scenario_, request)) return true;
  if (!request.request.chunked) return false;
  const bool others =
      std::any_of(scenario_.workers.begin(), scenario_.workers.end(),
                  [&](const SimWorker::Options& worker) { return !TakesPrompt(worker, request); });
  const int32_t lost = Lost(/*decode=*/true, request, life);
  if (others && lost >= Decoders(request)) return true;
  return request.request.placement == Placement::kRemote &&
         lost + Lost(/*decode=*/false, request, life) > 0;
}

bool Excuses::IsTooEarly(const ScenarioRequest& request, const End& end) const {
  // A restart of the router begins the time anew, and a jump of its clock ends it.
  return request.request.chunked && end.at_us < RouterCore::kRegistrationUs &&
         !Meets(failing_, {0, end.at_us});
}

bool Excuses::IsRefusedForNow(const ScenarioRequest& request, const End& end,
                              const Span& life) const {
  return request.request.chunked && end.at_us < RouterCore::kRegistrationUs + kFirstRequestUs &&
         IsRefused(request, life);
}

bool Excuses::QueuesWereFull(const ScenarioRequest& request, const End& end) const {
  const int64_t came_before = std::count_if(
      scenario_.requests.begin(), scenario_.requests.end(), [&](const ScenarioRequest& other) {
        return other.request.number != request.request.number && other.start_us <= end.at_us;
      });
  return std::any_of(
      scenario_.workers.begin(), scenario_.workers.end(), [&](const SimWorker::Options& worker) {
        return worker.role != WorkerRole::kPrefill &&
               came_before >=
                   std::min<int64_t>(worker.max_active_requests, worker.engine.max_waiting);
      });
}

bool Excuses::SomePairFits() const {
  const std::vector<SimWorker::Options>& workers = scenario_.workers;
  const auto fits = [](const SimWorker::Options& sender, const SimWorker::Options& receiver) {
    return &sender != &receiver && sender.role != WorkerRole::kDecode &&
           receiver.role != WorkerRole::kPrefill &&
           (sender.engine.window_blocks == 0 ||
            sender.engine.block_size >= receiver.engine.block_size);
  };
  return std::any_of(workers.begin(), workers.end(), [&](const SimWorker::Options& sender) {
    return std::any_of(workers.begin(), workers.end(),
                       [&](const SimWorker::Options& receiver) { return fits(sender, receiver); });
  });
}

bool Excuses::Excused(const ScenarioRequest& request, const End& end) const {
  const Span life = {request.start_us, end.at_us};
  const bool remote_demanded = request.request.placement == Placement::kRemote;
  const int32_t lost = Lost(/*decode=*/true, request, life);
  // Any remaining decode worker can continue an answer, with any pool layout.
  const bool may_fail = lost >= Decoders(request) || Meets(failing_, life);
  switch (end.status.code()) {
    case absl::StatusCode::kOk:
      return Takes(scenario_, request);
    case absl::StatusCode::kFailedPrecondition:
      return IsRefused(request, life) && !IsTooEarly(request, end);
    case absl::StatusCode::kCancelled:
      return request.cancel_after_us > 0 || request.cancel_after_messages > 0;
    case absl::StatusCode::kDeadlineExceeded:
      return end.deadline_passed || Meets(clock_jumps_, life);
    case absl::StatusCode::kResourceExhausted:
      return request.read_us > 0 || remote_demanded || may_fail || QueuesWereFull(request, end);
    case absl::StatusCode::kUnavailable:
      // The remaining workers may have no room for it.
      return may_fail || IsRefusedForNow(request, end, life) ||
             (lost > 0 && (remote_demanded || QueuesWereFull(request, end))) ||
             (remote_demanded && (!SomePairFits() || Lost(/*decode=*/false, request, life) > 0));
    default:
      return false;
  }
}

absl::Status Excuses::Judge(const ScenarioRequest& request, const End& end) const {
  if (!Excused(request, end)) {
    return absl::InternalError(
        absl::StrCat("no fault during this request excuses ", end.status.ToString()));
  }
  int64_t excused_us = kPromptUs;
  // Routers also decide themselves on pulls, of chunks and of prefixes. A receiver that
  // waits for bytes which do not come gives up at the limit of its pull.
  const Span life = {request.start_us, end.at_us};
  if (scenario_.pulls != 0 || scenario_.has_chunks || Meets(damaged_streams_, life))
    excused_us += scenario_.router.pull_least_ms * 1000;
  for (const Span& delay : delays_) {
    const int64_t from_us = std::max(delay.from_us, request.start_us);
    excused_us += std::max<int64_t>(0, std::min(delay.until_us, end.at_us) - from_us);
  }
  // Each hand-off over a broken path has blocks until its loss is found. A request that waits for
  // room waits for those ahead of it, one after the other.
  const bool waits = Meets(broken_hand_offs_, life);
  for (const ScenarioRequest& other : scenario_.requests) {
    excused_us += kChoiceUs * (other.request.n - 1);
    if (waits && other.start_us < end.at_us) excused_us += kLossFoundUs;
  }
  if (end.took_us > excused_us) {
    return absl::InternalError(
        absl::StrCat("took ", end.took_us, " us, but its faults excuse at most ", excused_us));
  }
  return absl::OkStatus();
}

}  // namespace baton
