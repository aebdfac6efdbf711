// What a Generate call does before its workers hear of it: a pull of the prompt's cached prefix to
// the worker that will compute the rest.
#include <algorithm>
#include <chrono>
#include <utility>

#include "router/generate_call.h"

namespace baton {

void GenerateCall::Pull(const FlowAction& action) {
  const PrefixPull& pull = *route_.plan.pull;
  v1::PullPrefixRequest request;
  const std::vector<TokenId> tokens = choices_.CommonTokens(prompt_);
  request.mutable_token_ids()->Add(tokens.begin(), tokens.end());
  request.mutable_token_ids()->Truncate(pull.tokens);
  request.set_cache_namespace(cache_namespace_.low());
  request.set_cache_namespace_high(cache_namespace_.high());
  request.set_priority(priority_);
  request.set_timeout_ms(PullTimeoutMs(*host_.options, pull));
  const WorkerNumber receiver = route_.plan.prefiller();
  const Epoch receiver_epoch = route_.plan.prefill ? route_.prefill_epoch : route_.decode_epoch;
  host_.watch->Attach({receiver, receiver_epoch, route_.prefiller_address()}, Self());
  host_.watch->Attach({pull.from, route_.pull_source_epoch, route_.pull_source_address}, Self());
  pull_ = std::make_shared<PullCall>(
      host_.channels->Get(route_.prefiller_address(), receiver_epoch),
      host_.channels->Get(route_.pull_source_address, route_.pull_source_epoch), std::move(request),
      [self = Self(), attempt = action.attempt, began_us = host_.clock->NowUs(), receiver,
       source = pull.from](const PullOutcome& outcome) {
        self->host_.watch->Detach(receiver, self.get());
        self->host_.watch->Detach(source, self.get());
        self->OnPullEnd(attempt, began_us, outcome);
      });
  pull_->Start(deadline_);
}

// The request ends before its workers heard of it.
void GenerateCall::CancelPull() {
  pull_->Cancel();
  PrefillEnded();
  host_.core->WorkerDone(route_.plan.decode);
  if (prefill_expected_) host_.core->WorkerDone(*route_.plan.prefill);
  prefill_expected_ = false;
}

void GenerateCall::OnPullEnd(int32_t attempt, int64_t began_us, const PullOutcome& outcome) {
  std::lock_guard lock(state_mutex_);
  if (attempt != flow_.attempt() || flow_.ended()) return;
  const RoutePlan& plan = route_.plan;
  const int64_t us = host_.clock->NowUs() - began_us;
  if (outcome.receiver_gone) host_.core->MarkUnreachable(plan.prefiller());
  if (outcome.source_gone) host_.core->MarkUnreachable(plan.pull->from);
  // The client's own deadline says nothing of the pull.
  const bool too_slow =
      absl::IsDeadlineExceeded(outcome.status) && std::chrono::system_clock::now() < deadline_;
  if (outcome.prefix.kv_bytes() > 0 || too_slow) {
    host_.core->Learn(FinishedFromPull(plan.prefiller(), us, plan.pull->tokens, outcome.prefix));
  }
  ledger_.Pulled(us, std::clamp(outcome.prefix.pulled_tokens(), 0, plan.pull->tokens),
                 route_.pull_source_id);
  ledger_.Routed(host_.clock->NowUs());
  Run(flow_.OnPullEnded(attempt));
}

}  // namespace baton
