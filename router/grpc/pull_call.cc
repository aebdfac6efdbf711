#include "router/grpc/pull_call.h"

#include <utility>

#include "rpc/status_conversion.h"

namespace baton {

PullCall::PullCall(const std::shared_ptr<grpc::Channel>& receiver,
                   const std::shared_ptr<grpc::Channel>& source, v1::PullPrefixRequest request,
                   Done done)
    : receiver_(v1::Worker::NewStub(receiver)),
      source_(v1::Worker::NewStub(source)),
      request_(std::move(request)),
      done_(std::move(done)) {}

void PullCall::Start(const CallDeadline& deadline) {
  self_ = shared_from_this();
  deadline_ = deadline.Within(request_.timeout_ms());
  context_.set_deadline(deadline_->ForCall());
  receiver_->async()->PullPrefix(&context_, &request_, this);
  StartRead(&event_);
  StartCall();
}

void PullCall::OnReadDone(bool ok) {
  if (!ok) return;  // the stream has ended: OnDone follows
  if (event_.has_ticket() && OnTicket()) AskSource(event_.ticket());
  if (event_.has_done()) prefix_ = event_.done();
  event_.Clear();
  StartRead(&event_);
}

void PullCall::AskSource(const v1::PullTicket& ticket) {
  v1::SendPrefixRequest request;
  *request.mutable_token_ids() = request_.token_ids();
  if (request_.has_chunked()) *request.mutable_chunked() = request_.chunked();
  request.set_cache_namespace(request_.cache_namespace());
  request.set_cache_namespace_high(request_.cache_namespace_high());
  *request.mutable_ticket() = ticket;
  request.set_priority(request_.priority());
  const auto begin = [](v1::Worker::Stub& stub, grpc::ClientContext* context,
                        const v1::SendPrefixRequest* wire, v1::SendPrefixResponse* response,
                        std::function<void(grpc::Status)> done) {
    stub.async()->SendPrefix(context, wire, response, std::move(done));
  };
  send_ = SendCall::Start(
      std::move(source_), std::move(request), deadline_->ForCall(), begin,
      [self = shared_from_this()](const absl::Status& status, const v1::SendPrefixResponse&) {
        self->OnSourceAnswered(status);
      });
}

bool PullCall::OnTicket() {
  std::lock_guard lock(mutex_);
  return flow_.OnTicket();
}

void PullCall::OnSourceAnswered(const absl::Status& status) {
  std::unique_lock lock(mutex_);
  const bool cancel = flow_.OnSourceAnswered(status);
  lock.unlock();
  if (cancel) context_.TryCancel();
}

void PullCall::OnDone(const grpc::Status& status) {
  if (send_ != nullptr) send_->Cancel();
  PullOutcome outcome;
  {
    std::lock_guard lock(mutex_);
    static_cast<PullFlow::Outcome&>(outcome) = flow_.OnReceiverEnded(FromGrpcStatus(status));
  }
  if (outcome.status.ok()) outcome.prefix = std::move(prefix_);
  request_ = {};  // frees the prompt
  done_(outcome);
  done_ = nullptr;
  const auto last = std::move(self_);  // may destroy this at the end of the scope
}

}  // namespace baton
