#include "worker_rpc/served_calls.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

// 0 means no timeout.
int64_t SoonerTimeoutMs(int64_t a, int64_t b) {
  if (a <= 0 || b <= 0) return std::max(a, b);
  return std::min(a, b);
}

// Returns the request, and stores its slot in `slot`.
template <typename Request>
absl::StatusOr<Request> Admit(ConcurrencyLimit& limit, MakeRequest<Request> make,
                              ConcurrencyLimit::Slot& slot) {
  absl::StatusOr<ConcurrencyLimit::Slot> place = limit.Enter();
  if (!place.ok()) return place.status();
  slot = *std::move(place);
  return make();
}

}  // namespace

void ServedDecode::Start(ConcurrencyLimit& limit, MakeRequest<GenerateRequest> make,
                         int64_t deadline_ms, std::shared_ptr<RequestSink> self) {
  absl::StatusOr<GenerateRequest> request = Admit(limit, make, slot_);
  if (!request.ok()) return EndCall(request.status());
  request->timeout_ms = SoonerTimeoutMs(request->timeout_ms, deadline_ms);
  engine_call_.Started(engine_->Generate(*std::move(request), std::move(self)));
}

void ServedDecode::OnTicket(const TransferTicket& ticket) {
  if (!SendTicket(ticket)) CancelRequest();
}

void ServedDecode::OnTokens(TokenOutput output) {
  if (!SendTokens(std::move(output))) CancelRequest();
}

void ServedDecode::OnFinish(FinishInfo info) {
  const bool last = info.last;
  const bool sent = SendFinish(std::move(info));
  if (last) return EndCall(absl::OkStatus());
  if (!sent) CancelRequest();
}

void ServedPrefill::Start(ConcurrencyLimit& limit, MakeRequest<PrefillRequest> make,
                          std::shared_ptr<PrefillSink> self) {
  absl::StatusOr<PrefillRequest> request = Admit(limit, make, slot_);
  if (!request.ok()) return EndCall(request.status());
  engine_call_.Started(engine_->Prefill(*std::move(request), std::move(self)));
}

void ServedPull::Start(ConcurrencyLimit& limit, MakeRequest<PullRequest> make,
                       std::shared_ptr<PullSink> self) {
  absl::StatusOr<PullRequest> request = Admit(limit, make, slot_);
  if (!request.ok()) return EndCall(request.status());
  engine_call_.Started(engine_->PullPrefix(*std::move(request), std::move(self)));
}

void ServeSendPrefix(EngineRequests& engine, const std::shared_ptr<ConcurrencyLimit>& limit,
                     MakeRequest<SendPrefixRequest> make,
                     std::function<void(absl::StatusOr<int32_t>)> done) {
  struct Place {
    std::shared_ptr<ConcurrencyLimit> limit;
    ConcurrencyLimit::Slot slot;
  };
  const auto place = std::make_shared<Place>(Place{.limit = limit, .slot = {}});
  absl::StatusOr<SendPrefixRequest> request = Admit(*limit, make, place->slot);
  if (!request.ok()) return done(request.status());
  engine.SendPrefix(
      *std::move(request),
      [done = std::move(done), place](const absl::StatusOr<int32_t>& tokens) { done(tokens); });
}

absl::Status AnswerPing(const EngineRequests& engine, Epoch meant) {
  if (meant.value() == 0 || meant == engine.epoch()) return engine.CheckWatchdog();
  return absl::FailedPreconditionError(
      absl::StrCat("epoch ", meant.value(), " has ended; this is epoch ", engine.epoch().value()));
}

}  // namespace baton
