#include "tests/sim/oracle.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

constexpr int64_t kGraceUs = 100'000;   // allowed after a deadline
constexpr int64_t kRoundingUs = 3'000;  // deadlines travel in whole milliseconds, rounded down

}  // namespace

RequestOracle::RequestOracle(const ScenarioRequest& request, const SimModel& model,
                             int32_t context_length)
    : request_(request) {
  const SimGenerateRequest& asked = request.request;
  for (int32_t i = 0; i < asked.n; ++i) {
    SimAnswer& expected = choices_.emplace_back().expected;
    if (!asked.chunked) {
      expected = LiteralAnswer(model, asked.prompt, asked.sampling, context_length, i);
    } else if (model.window == 0) {  // otherwise the request must be refused
      expected = LiteralAnswer(model, *asked.chunked, asked.sampling, context_length, i);
    }
  }
}

RequestOracle::Choice* RequestOracle::Find(int32_t choice) {
  if (choice < 0 || choice >= request_.request.n) return nullptr;
  return choices_[choice].finished ? nullptr : &choices_[choice];
}

bool RequestOracle::finished() const {
  return std::all_of(choices_.begin(), choices_.end(),
                     [](const Choice& choice) { return choice.finished; });
}

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
  if (finished()) return Say("outcome", "a message after the last choice finished");
  if (const auto* tokens = std::get_if<TokenOutput>(&response)) return OnTokens(*tokens);
  return OnFinish(std::get<FinishInfo>(response));
}

std::optional<Violation> RequestOracle::OnTokens(const TokenOutput& output) {
  Choice* const choice = Find(output.choice);
  if (choice == nullptr)
    return Say("outcome", absl::StrCat("tokens of choice ", output.choice,
                                       ", which does not exist or has finished"));
  const std::vector<TokenId>& expected = choice->expected.tokens;
  for (const TokenId token : output.token_ids) {
    if (choice->tokens >= expected.size()) {
      return Say("answer",
                 absl::StrCat("choice ", output.choice, "'s token ", choice->tokens, " is ", token,
                              ", but the answer has only ", expected.size()));
    }
    if (token != expected[choice->tokens]) {
      return Say("answer",
                 absl::StrCat("choice ", output.choice, "'s token ", choice->tokens, " is ", token,
                              ", but without faults it is ", expected[choice->tokens]));
    }
    ++choice->tokens;
  }
  choice->text += output.text;
  return std::nullopt;
}

std::optional<Violation> RequestOracle::OnFinish(const FinishInfo& info) {
  Choice* const choice = Find(info.choice);
  if (choice == nullptr)
    return Say("outcome", absl::StrCat("an end of choice ", info.choice,
                                       ", which does not exist or has finished"));
  const SimAnswer& expected = choice->expected;
  choice->finished = true;
  choice->text += info.text;
  if (choice->tokens != expected.tokens.size()) {
    return Say("answer", absl::StrCat("choice ", info.choice, " finished after ", choice->tokens,
                                      " of ", expected.tokens.size(), " tokens"));
  }
  if (choice->text != expected.text) {
    return Say("answer", absl::StrCat("text \"", choice->text, "\", but without faults it is \"",
                                      expected.text, "\""));
  }
  if (info.reason != expected.reason) {
    return Say("answer",
               absl::StrCat("finish reason ", FinishReasonName(info.reason),
                            ", but without faults it is ", FinishReasonName(expected.reason)));
  }
  if (info.logits_hash != expected.logits_hash) {
    return Say("answer", "the tokens are right, but the sampled logits are not");
  }
  // Of an answer that is resumed when it is complete, a worker computes nothing and places no
  // chunk.
  const bool resumed_complete = info.ledger.computed_tokens == 0 && info.ledger.chunk.chunks == 0;
  return resumed_complete ? std::nullopt : OnLedger(info.ledger.chunk);
}

std::optional<Violation> RequestOracle::OnLedger(const ChunkLedger& ledger) const {
  const std::optional<ChunkedPrompt>& chunked = request_.request.chunked;
  const auto chunks = static_cast<int32_t>(chunked ? chunked->chunks.size() : 0);
  const int32_t repaired = chunked ? LiteralRepairedTokens(*chunked) : 0;
  if (ledger.chunks == chunks && ledger.repaired_tokens == repaired) return std::nullopt;
  return Say("answer",
             absl::StrCat("its ledger has ", ledger.chunks, " chunks and ", ledger.repaired_tokens,
                          " repaired tokens, but there are ", chunks, " and ", repaired));
}

std::optional<Violation> RequestOracle::OnEnd(const absl::Status& status, int64_t now_us,
                                              int64_t late_us, const Excuses& excuses) {
  if (ended_) return Say("outcome", "ended twice");
  ended_ = true;
  const int64_t deadline_us = request_.start_us + request_.deadline_us;
  if (now_us - late_us > deadline_us + kGraceUs) {
    return Say("outcome", absl::StrCat("ended ", now_us - deadline_us, " us after its deadline"));
  }
  if (status.ok() && !finished())
    return Say("outcome", "ended with OK before every choice had finished");
  const absl::Status excused =
      excuses.Judge(request_, {.status = status,
                               .deadline_passed = now_us >= deadline_us - kRoundingUs,
                               .at_us = now_us,
                               .took_us = now_us - late_us - request_.start_us});
  if (!excused.ok()) return Say("outcome", std::string(excused.message()));
  return std::nullopt;
}

namespace {

BlockAllocator::Accounting BlocksOf(const KvCacheManager& cache, int32_t group) {
  const KvCacheStats stats = cache.Stats();
  return group == 0 ? stats.blocks : stats.windows[static_cast<size_t>(group) - 1].blocks;
}

absl::Status CheckGroup(const SimEngine& engine, int32_t group, Mutant mutant) {
  const KvCacheManager& cache = engine.cache();
  const absl::Status holds =
      cache.CheckStepHolds(engine.scheduler().step_holds().Held(group), group);
  if (!holds.ok()) return holds;
  const BlockAllocator::Accounting blocks = BlocksOf(cache, group);
  int32_t counted = blocks.free + blocks.cached + blocks.owned + blocks.in_transfer + blocks.step;
  if (mutant == Mutant::kCheckerCountsTwice) counted += blocks.in_transfer;
  if (counted == blocks.total) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("group ", group, ": ", blocks.free, " free, ",
                                          blocks.cached, " cached, ", blocks.owned, " owned, ",
                                          blocks.in_transfer, " in flight, ", blocks.step,
                                          " in steps make ", counted, " of ", blocks.total));
}

absl::Status CheckGroupAtRest(const KvCacheManager& cache, int32_t group) {
  const BlockAllocator::Accounting blocks = BlocksOf(cache, group);
  if (blocks.owned != 0 || blocks.in_transfer != 0 || blocks.step != 0) {
    return absl::InternalError(absl::StrCat("at rest ", blocks.owned, " blocks of group ", group,
                                            " are owned, ", blocks.in_transfer, " in flight, ",
                                            blocks.step, " in steps"));
  }
  if (cache.retiring_blocks(group) == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("at rest ", cache.retiring_blocks(group),
                                          " blocks behind the end of group ", group,
                                          "'s pool are not free"));
}

absl::Status CheckChunksAtRest(const ChunkCacheStats& chunks) {
  if (chunks.referenced_blocks == 0 && chunks.used_blocks <= chunks.budget_blocks) {
    return absl::OkStatus();
  }
  return absl::InternalError(absl::StrCat(
      "at rest ", chunks.used_blocks, " blocks have cached chunks, of which ",
      chunks.referenced_blocks, " are referenced; the budget is ", chunks.budget_blocks));
}

}  // namespace

std::optional<Violation> CheckConservation(SimWorker& worker, Mutant mutant) {
  const SimEngine& engine = *worker.engine();
  absl::Status found = engine.cache().CheckConservation();
  for (int32_t group = 0; found.ok() && group < engine.cache().groups(); ++group) {
    found = CheckGroup(engine, group, mutant);
  }
  if (found.ok()) found = engine.integrity_error();
  const bool checks_all = worker.options().engine.chunk_slots > 0 && mutant == Mutant::kNone;
  if (found.ok() && checks_all) found = engine.core().CheckConservation();
  if (found.ok()) return std::nullopt;
  return Violation{"conservation", std::string(found.message()), 0, worker.node().id()};
}

std::optional<Violation> CheckAtRest(SimWorker& worker) {
  const SimEngine& engine = *worker.engine();
  const int32_t node = worker.node().id();
  for (int32_t group = 0; group < engine.cache().groups(); ++group) {
    const absl::Status found = CheckGroupAtRest(engine.cache(), group);
    if (!found.ok()) return Violation{"conservation", std::string(found.message()), 0, node};
  }
  const absl::Status chunks = CheckChunksAtRest(engine.core().chunk_stats());
  if (!chunks.ok()) return Violation{"conservation", std::string(chunks.message()), 0, node};
  if (!engine.idle() || engine.queued() != 0) {
    return Violation{"liveness",
                     absl::StrCat("at rest the engine has ", engine.queued(), " sequences and ",
                                  engine.core().active_transfers(), " transfers"),
                     0, node};
  }
  return std::nullopt;
}

}  // namespace baton
