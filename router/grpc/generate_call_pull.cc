// The part of GenerateCall that pulls the prompt's cached prefix before the request goes to its
// workers. The worker that will compute the rest of the prompt receives the prefix.
#include <algorithm>
#include <utility>

#include "router/grpc/generate_call.h"
#include "rpc/chunked_prompt_wire.h"

namespace baton {

void GenerateCall::StartPull(int32_t attempt) {
  const Route& route = session_.route();
  const GenerateSession::Request& asked = session_.request();
  const PrefixPull& pull = *route.plan.pull;
  v1::PullPrefixRequest request;
  if (asked.chunked != nullptr) {
    *request.mutable_chunked() =
        ChunkedPromptToWire(asked.chunked->WithChunks(route.pulled_chunks));
  } else {
    const std::vector<TokenId> tokens = session_.PulledTokens();
    request.mutable_token_ids()->Add(tokens.begin(), tokens.end());
  }
  request.set_cache_namespace(asked.cache_namespace.low());
  request.set_cache_namespace_high(asked.cache_namespace.high());
  request.set_priority(priority_);
  SetCacheOwner(request);
  request.set_timeout_ms(PullTimeoutMs(*host_.options, pull));
  pull_ = std::make_shared<PullCall>(
      host_.channels->Get(route.prefiller_address(), route.prefiller_epoch()),
      host_.channels->Get(route.pull_source_address, route.pull_source_epoch), std::move(request),
      [self = shared_from_this(), attempt, began_us = host_.clock->NowUs()](
          const PullOutcome& outcome) { self->OnPullEnd(attempt, began_us, outcome); });
  pull_->Start(deadline_);
}

void GenerateCall::OnPullEnd(int32_t attempt, int64_t began_us, const PullOutcome& outcome) {
  std::lock_guard lock(state_mutex_);
  if (session_.IsCurrent(attempt)) {
    const Route& route = session_.route();
    const RoutePlan& plan = route.plan;
    const int64_t us = host_.clock->NowUs() - began_us;
    // If the client's own deadline passed, that says nothing about the pull's speed.
    const bool too_slow = absl::IsDeadlineExceeded(outcome.status) && !deadline_.Passed();
    const FinishedPull finished =
        FinishedFromPull(plan.prefiller(), us, plan.pull->tokens, outcome.prefix);
    if (outcome.prefix.kv_bytes() > 0 || too_slow) host_.core->Learn(finished);
    using Outcome = baton::PullOutcomeLabel;
    meter_.PullEnded(!outcome.status.ok()                 ? Outcome::kFailed
                     : outcome.prefix.pulled_tokens() > 0 ? Outcome::kPulled
                                                          : Outcome::kNothing);
    ledger_.Pulled(us, std::clamp(outcome.prefix.pulled_tokens(), 0, plan.pull->tokens),
                   route.pull_source_id,
                   session_.request().chunked != nullptr ? finished.kv_bytes : 0);
    ledger_.Routed(host_.clock->NowUs());
    if (trace_ != nullptr) {
      trace_->Pulled(began_us, began_us + us, outcome.prefix.pulled_tokens(), route.pull_source_id,
                     outcome.status);
    }
  }
  session_.OnPullEnd(attempt, outcome.receiver_gone, outcome.source_gone);
}

}  // namespace baton
