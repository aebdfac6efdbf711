#include "tests/sim/oracle.h"

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

constexpr int64_t kGraceUs = 100'000;   // behind a deadline
constexpr int64_t kRoundingUs = 3'000;  // deadlines travel in whole milliseconds, rounded down

}  // namespace

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
