#include "tests/sim/oracle.h"

#include <set>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

// A decode worker that dies behind the first token ends its request today. Once another worker
// resumes such a request, this turns true and the failure is no longer excused.
constexpr bool kStreamsResume = false;

constexpr int64_t kGraceUs = 100'000;   // behind a deadline
constexpr int64_t kRoundingUs = 3'000;  // deadlines travel in whole milliseconds, rounded down

constexpr int64_t kPromptUs = 3'000'000;  // a dead peer is found in 1 s; the rest is work
constexpr int64_t kDrainUs = 5'000'000;

const SimWorker::Options* WorkerAt(const Scenario& scenario, int32_t node) {
  if (node < kFirstWorkerNode) return nullptr;  // or named only when the fault happens
  return &scenario.workers[static_cast<size_t>(node - kFirstWorkerNode)];
}

bool IsDeath(FaultKind kind) {
  return kind == FaultKind::kKill || kind == FaultKind::kTerminate ||
         kind == FaultKind::kUnnoticedRestart;
}

// What only KV on its way, or a prefill worker, can suffer never costs an answer.
bool HarmsOnlyPrefills(const Scenario& scenario, const Fault& fault) {
  if (fault.kind == FaultKind::kFlip || fault.kind == FaultKind::kTruncate ||
      fault.kind == FaultKind::kDuplicate) {
    return true;
  }
  const SimWorker::Options* const worker = WorkerAt(scenario, fault.node);
  return worker != nullptr && worker->role == WorkerRole::kPrefill && IsDeath(fault.kind);
}

}  // namespace

Excuses::Excuses(const Scenario& scenario) {
  std::set<int32_t> dying;  // decode workers
  patience_us_ = kPromptUs;
  for (const Fault& fault : scenario.faults) {
    patience_us_ += fault.duration_us + (fault.kind == FaultKind::kTerminate ? kDrainUs : 0);
    clocks_jump_ = clocks_jump_ || fault.kind == FaultKind::kClockJump;
    if (HarmsOnlyPrefills(scenario, fault)) continue;
    const bool decode_worker_dies =
        WorkerAt(scenario, fault.node) != nullptr &&
        (fault.kind == FaultKind::kKill || fault.kind == FaultKind::kTerminate);
    if (decode_worker_dies) {
      dying.insert(fault.node);
      // SIGTERM lets running answers finish.
      answers_may_break_ = answers_may_break_ || fault.kind == FaultKind::kKill;
    } else {
      calls_may_fail_ = true;
    }
  }
  // Another one takes over, if there is one.
  if (static_cast<int32_t>(dying.size()) >= scenario.decode_workers()) calls_may_fail_ = true;
  if (calls_may_fail_) patience_us_ = 0;
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
      return request.read_us > 0 || remote_demanded || calls_may_fail_;
    case absl::StatusCode::kUnavailable:
      return calls_may_fail_ || remote_demanded ||
             (answers_may_break_ && end.had_tokens && !kStreamsResume);
    default:
      return false;
  }
}

absl::Status Excuses::Judge(const ScenarioRequest& request, const End& end) const {
  if (!Excused(request, end)) {
    return absl::InternalError(
        absl::StrCat("no fault of this run excuses ", end.status.ToString()));
  }
  if (patience_us_ > 0 && end.took_us > patience_us_) {
    return absl::InternalError(
        absl::StrCat("took ", end.took_us, " us, this run's faults excuse ", patience_us_));
  }
  return absl::OkStatus();
}

RequestOracle::RequestOracle(const ScenarioRequest& request, int32_t context_length)
    : request_(request),
      expected_(LiteralAnswer(request.request.prompt, request.request.sampling, context_length)) {}

Violation RequestOracle::Say(const char* oracle, std::string what) const {
  return {oracle, absl::StrCat("request ", request_.request.number, ": ", what),
          request_.request.number, -1};
}

std::optional<Violation> RequestOracle::OnResponse(const SimResponse& response) {
  if (ended_) return Say("outcome", "a message after the end");
  if (std::holds_alternative<SimStarted>(response)) {
    if (started_) return Say("outcome", "started twice");
    started_ = true;
    return std::nullopt;
  }
  if (!started_) return Say("outcome", "a message before the start");
  if (finished_) return Say("outcome", "a message behind the last one");
  if (const auto* tokens = std::get_if<TokenOutput>(&response)) return OnTokens(*tokens);
  return OnFinish(std::get<FinishInfo>(response));
}

std::optional<Violation> RequestOracle::OnTokens(const TokenOutput& tokens) {
  for (const TokenId token : tokens.token_ids) {
    if (tokens_ >= expected_.tokens.size()) {
      return Say("answer", absl::StrCat("token ", tokens_, " is ", token, ", the answer has only ",
                                        expected_.tokens.size()));
    }
    if (token != expected_.tokens[tokens_]) {
      return Say("answer", absl::StrCat("token ", tokens_, " is ", token, ", fault-free it is ",
                                        expected_.tokens[tokens_]));
    }
    ++tokens_;
  }
  text_ += tokens.text;
  return std::nullopt;
}

std::optional<Violation> RequestOracle::OnFinish(const FinishInfo& info) {
  finished_ = true;
  text_ += info.text;
  if (tokens_ != expected_.tokens.size()) {
    return Say("answer",
               absl::StrCat("finished after ", tokens_, " tokens of ", expected_.tokens.size()));
  }
  if (text_ != expected_.text) {
    return Say("answer", absl::StrCat("text \"", text_, "\", fault-free \"", expected_.text, "\""));
  }
  if (info.reason != expected_.reason) {
    return Say("answer", absl::StrCat("finish reason ", FinishReasonName(info.reason)));
  }
  if (info.logits_hash != expected_.logits_hash) {
    return Say("answer", "the sampled logits differ, though the tokens do not");
  }
  return std::nullopt;
}

std::optional<Violation> RequestOracle::OnEnd(const absl::Status& status, int64_t now_us,
                                              int64_t late_us, const Excuses& excuses) {
  if (ended_) return Say("outcome", "ended twice");
  ended_ = true;
  const int64_t deadline_us = request_.start_us + request_.deadline_us;
  if (now_us - late_us > deadline_us + kGraceUs) {
    return Say("outcome", absl::StrCat("ended ", now_us - deadline_us, " us past its deadline"));
  }
  if (status.ok() && !finished_) return Say("outcome", "ended well without a last message");
  const absl::Status excused =
      excuses.Judge(request_, {.status = status,
                               .deadline_passed = now_us >= deadline_us - kRoundingUs,
                               .had_tokens = tokens_ > 0,
                               .took_us = now_us - late_us - request_.start_us});
  if (!excused.ok()) return Say("outcome", std::string(excused.message()));
  return std::nullopt;
}

std::optional<Violation> CheckConservation(SimWorker& worker, Mutant mutant) {
  const KvCacheManager& cache = worker.engine()->cache();
  const int32_t node = worker.node().id();
  if (const absl::Status status = cache.CheckConservation(); !status.ok()) {
    return Violation{"conservation", std::string(status.message()), 0, node};
  }
  const BlockAllocator::Accounting blocks = cache.Stats().blocks;
  int32_t counted = blocks.free + blocks.cached + blocks.owned + blocks.in_transfer;
  if (mutant == Mutant::kCheckerCountsTwice) counted += blocks.in_transfer;
  if (counted == blocks.total) return std::nullopt;
  return Violation{
      "conservation",
      absl::StrCat(blocks.free, " free, ", blocks.cached, " cached, ", blocks.owned, " owned, ",
                   blocks.in_transfer, " in flight make ", counted, " of ", blocks.total),
      0, node};
}

std::optional<Violation> CheckAtRest(SimWorker& worker) {
  const SimEngine& engine = *worker.engine();
  const int32_t node = worker.node().id();
  const BlockAllocator::Accounting blocks = engine.cache().Stats().blocks;
  if (blocks.owned != 0 || blocks.in_transfer != 0) {
    return Violation{"conservation",
                     absl::StrCat("at rest ", blocks.owned, " blocks are owned and ",
                                  blocks.in_transfer, " in flight"),
                     0, node};
  }
  if (!engine.idle() || engine.queued() != 0) {
    return Violation{"liveness",
                     absl::StrCat("at rest the engine has ", engine.queued(), " sequences and ",
                                  engine.core().active_transfers(), " transfers"),
                     0, node};
  }
  return std::nullopt;
}

}  // namespace baton
