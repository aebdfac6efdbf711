#include "tests/sim/sim_pull.h"

#include <utility>

namespace baton {

std::shared_ptr<SimPull> SimPull::Start(const Parties& parties, const PullRequest& request,
                                        int64_t deadline_us,
                                        std::function<void(const Outcome&)> done) {
  std::shared_ptr<SimPull> pull(new SimPull(parties, request, deadline_us, std::move(done)));
  pull->Begin();
  return pull;
}

void SimPull::Begin() {
  const auto on_ticket = [self = shared_from_this()](const TransferTicket& ticket) {
    if (self->flow_.OnTicket()) self->AskSource(ticket);
  };
  stream_ = SimCall::Start(
      *parties_.network, parties_.router, parties_.receiver->node().id(), MessageKind::kCall,
      deadline_us_,
      [receiver = parties_.receiver, number = parties_.number, request = request_,
       on_ticket](const std::shared_ptr<SimCall>& call) {
        receiver->PullPrefix(call, number, request, on_ticket);
      },
      [self = shared_from_this()](const absl::Status& status) { self->OnEnd(status); });
}

void SimPull::AskSource(const TransferTicket& ticket) {
  SendPrefixRequest request{.tokens = request_.tokens,
                            .cache_namespace = request_.cache_namespace,
                            .ticket = ticket,
                            .priority = request_.priority,
                            .chunked = request_.chunked};
  send_ = SimCall::Start(
      *parties_.network, parties_.router, parties_.source->node().id(), MessageKind::kCall,
      deadline_us_,
      [source = parties_.source, number = parties_.number, request = std::move(request)](
          const std::shared_ptr<SimCall>& call) { source->SendPrefix(call, number, request); },
      [self = shared_from_this()](const absl::Status& status) {
        if (self->flow_.OnSourceAnswered(status)) self->stream_->Cancel();
      });
}

void SimPull::OnEnd(const absl::Status& status) {
  if (send_ != nullptr) send_->Cancel();
  done_(flow_.OnReceiverEnded(status));
}

}  // namespace baton
