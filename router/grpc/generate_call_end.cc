// The part of GenerateCall that runs when a request ends: what routing learns from it, and where it
// is counted, traced, logged and shown.
#include <algorithm>
#include <utility>

#include "router/grpc/generate_call.h"

namespace baton {

void GenerateHost::Refused(Endpoint endpoint, std::string_view id, const absl::Status& status,
                           Refusal reason) const {
  RequestMeter::Refused(metrics, endpoint, status, reason);
  if (request_log != nullptr) request_log->Refused(id, endpoint, status);
}

void GenerateCall::End(const absl::Status& status) {
  if (status.ok() && session_.attempt() == 1) {  // otherwise the times span several attempts
    const Route& route = session_.route();
    const int32_t decode_batch = route.decode_batch + session_.request().choices.n() - 1;
    FinishedRequest finished =
        FinishedFromLedger(route.plan, decode_batch, session_.prefill_reported(), last_end_);
    // The tokens of a part attend to fewer tokens than those of an ordinary prompt. So they say
    // little about its speed.
    if (session_.request().chunked != nullptr) finished.computed_tokens = 0;
    host_.core->Learn(finished);
  }
  if (absl::IsUnavailable(status) || absl::IsInternal(status) || absl::IsUnknown(status)) {
    host_.log->Failed(request_id_, status);
  }
  CountEnd(status);
  if (visit_ != nullptr) {
    const int64_t answer = AnswerTokens();
    const bool computed = status.ok() || answer > 0;
    visit_->End(computed ? static_cast<int64_t>(session_.request().prompt.size()) + answer : 0);
  }
  client_->End(status);
  if (report_alarm_ != nullptr) report_alarm_->Cancel();
}

int64_t GenerateCall::AnswerTokens() const {
  int64_t tokens = 0;
  for (const AnswerChoices::Choice& choice : session_.request().choices.all()) {
    tokens += static_cast<int64_t>(choice.tokens.size());
  }
  return tokens;
}

// Counts before the client knows of the end, so that a scrape after an answer contains it.
void GenerateCall::CountEnd(const absl::Status& status) {
  const v1::Ledger& ledger = last_end_.ledger();
  const v1::Usage& usage = last_end_.usage();
  const int64_t now_us = host_.clock->NowUs();
  meter_.Ended(status, now_us,
               {.prompt_tokens = usage.prompt_tokens(),
                .computed_tokens = ledger.computed_tokens(),
                .pulled_tokens = ledger.pulled_tokens(),
                .decode_cached_tokens = ledger.decode_cached_tokens(),
                .prefilled_elsewhere = session_.prefill_reported()});
  const RecentRequest ended = Ended(status, now_us);
  if (trace_ != nullptr) {
    trace_->Ended(status, now_us,
                  {.prompt_tokens = ended.prompt_tokens,
                   .cached_tokens = ended.cached_tokens,
                   .output_tokens = ended.output_tokens,
                   .resumes = session_.lost_workers()});
  }
  const std::string_view error(status.message().data(), status.message().size());
  if (host_.request_log != nullptr && !status.ok() && ended.decode_worker.empty()) {
    host_.request_log->Refused(ended.id, ended.endpoint, status);
  } else if (host_.request_log != nullptr) {
    host_.request_log->Ended({.id = ended.id,
                              .endpoint = ended.endpoint,
                              .code = ended.code,
                              .prompt_tokens = ended.prompt_tokens,
                              .cached_tokens = ended.cached_tokens,
                              .tokens = ended.output_tokens,
                              .first_token_us = ended.first_token_us,
                              .total_us = ended.total_us,
                              .prefill_worker = ended.prefill_worker,
                              .decode_worker = ended.decode_worker,
                              .error = error});
  }
  if (host_.recent != nullptr) host_.recent->Add(ended);
}

RecentRequest GenerateCall::Ended(const absl::Status& status, int64_t now_us) const {
  const v1::Ledger& ledger = last_end_.ledger();
  const GenerateSession::Request& request = session_.request();
  RecentRequest out;
  out.id = request_id_;
  out.endpoint = meter_.endpoint();
  out.code = status.code();
  out.ended_us = now_us;
  out.prompt_tokens = static_cast<int64_t>(request.prompt.size());
  out.cached_tokens = last_end_.usage().cached_tokens();
  out.output_tokens = AnswerTokens();
  if (session_.prefill_reported()) out.prefill_worker = session_.route().prefill_id;
  out.decode_worker = session_.route().decode_id;
  out.first_token_us = meter_.first_token_us();
  out.total_us = now_us - ledger_.received_us();
  // Workers are not trusted: no part is longer than the whole.
  const auto part = [&](int64_t us) { return std::clamp<int64_t>(us, 0, out.total_us); };
  out.tokenize_us = part(ledger.tokenize_us());
  out.route_us = part(ledger.route_us());
  out.pull_us = part(ledger.pull_us());
  out.queue_us = part(ledger.queue_us());
  out.prefill_us = part(ledger.prefill_us());
  out.transfer_us = part(ledger.kv_exposed_us());
  out.admit_us = part(ledger.admit_us());
  if (host_.recent != nullptr && request.chunked == nullptr) {
    out.prompt_hashes = RecentRequests::Kept(request.prompt_hashes);
  }
  return out;
}

}  // namespace baton
