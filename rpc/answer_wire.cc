#include "rpc/answer_wire.h"

#include <utility>

namespace baton {
namespace {

AnswerStarted StartedFromWire(const v1::Started& wire) {
  return {.request_id = wire.request_id(),
          .prompt_tokens = wire.prompt_tokens(),
          .seed = wire.seed(),
          .prompt_token_ids = {wire.prompt_token_ids().begin(), wire.prompt_token_ids().end()}};
}

AnswerTokens TokensFromWire(const v1::Tokens& wire) {
  AnswerTokens out = {.choice = wire.choice(),
                      .token_ids = {wire.token_ids().begin(), wire.token_ids().end()},
                      .text = wire.text(),
                      .logprobs = {}};
  for (const v1::TokenDetail& detail : wire.logprobs()) {
    TokenDetail& added = out.logprobs.emplace_back();
    added.logprob = detail.logprob();
    for (const v1::TokenLogprob& top : detail.top()) {
      added.top.push_back({.token = top.token_id(), .logprob = top.logprob()});
    }
  }
  return out;
}

LedgerFigures FiguresFromWire(const v1::Ledger& wire) {
  return {{"tokenize_us", wire.tokenize_us()},
          {"route_us", wire.route_us()},
          {"queue_us", wire.queue_us()},
          {"prefill_us", wire.prefill_us()},
          {"prefill_chunks", wire.prefill_chunks()},
          {"kv_bytes", wire.kv_bytes()},
          {"kv_transfer_us", wire.kv_transfer_us()},
          {"kv_exposed_us", wire.kv_exposed_us()},
          {"admit_us", wire.admit_us()},
          {"first_token_us", wire.first_token_us()},
          {"inter_token_us", wire.inter_token_us()},
          {"total_us", wire.total_us()},
          {"decode_cached_tokens", wire.decode_cached_tokens()},
          {"prefill_cached_tokens", wire.prefill_cached_tokens()},
          {"computed_tokens", wire.computed_tokens()},
          {"preemptions", wire.preemptions()},
          {"resumes", wire.resumes()},
          {"pull_us", wire.pull_us()},
          {"pulled_tokens", wire.pulled_tokens()},
          {"chunks", wire.chunks()},
          {"chunk_hits", wire.chunk_hits()},
          {"chunk_repaired_tokens", wire.chunk_repaired_tokens()},
          {"chunk_pulled_bytes", wire.chunk_pulled_bytes()},
          {"chunk_lookup_us", wire.chunk_lookup_us()},
          {"chunk_compute_us", wire.chunk_compute_us()},
          {"chunk_place_us", wire.chunk_place_us()},
          {"chunk_repair_us", wire.chunk_repair_us()},
          {"chunk_wake_us", wire.chunk_wake_us()}};
}

AnswerFinished FinishedFromWire(const v1::Finished& wire) {
  return {.choice = wire.choice(),
          .text = wire.text(),
          .finish_reason = wire.reason() == v1::FINISH_REASON_STOP ? "stop" : "length",
          .prompt_tokens = wire.usage().prompt_tokens(),
          .cached_tokens = wire.usage().cached_tokens(),
          .completion_tokens = wire.usage().completion_tokens(),
          .logits_hash = wire.logits_hash(),
          .ledger = FiguresFromWire(wire.ledger()),
          .prefill_worker = wire.ledger().prefill_worker(),
          .pull_source = wire.ledger().pull_source(),
          .decode_worker = wire.ledger().decode_worker()};
}

}  // namespace

std::optional<AnswerEvent> AnswerEventFromWire(const v1::GenerateResponse& wire) {
  switch (wire.event_case()) {
    case v1::GenerateResponse::kStarted:
      return StartedFromWire(wire.started());
    case v1::GenerateResponse::kTokens:
      return TokensFromWire(wire.tokens());
    case v1::GenerateResponse::kFinished:
      return FinishedFromWire(wire.finished());
    case v1::GenerateResponse::EVENT_NOT_SET:
      return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace baton
