#include "router/grpc/decode_stream.h"

#include <utility>

#include "rpc/status_conversion.h"

namespace baton {

DecodeStream::DecodeStream(std::unique_ptr<v1::DecodeWorker::Stub> stub, v1::DecodeRequest request,
                           int32_t attempt, WorkerNumber worker,
                           std::shared_ptr<DecodeListener> listener)
    : stub_(std::move(stub)),
      request_(std::make_unique<v1::DecodeRequest>(std::move(request))),
      attempt_(attempt),
      worker_(worker),
      listener_(std::move(listener)) {}

void DecodeStream::Start(std::chrono::system_clock::time_point deadline) {
  self_ = shared_from_this();
  context_.set_deadline(deadline);
  stub_->async()->Decode(&context_, request_.get(), this);
  StartRead(&event_);
  StartCall();
}

void DecodeStream::OnReadDone(bool ok) {
  if (!ok) return;   // the stream has ended: OnDone follows
  request_.reset();  // the worker has it; a long prompt would be kept for the whole answer
  listener_->OnDecodeEvent(attempt_, std::move(event_));
  event_.Clear();
  StartRead(&event_);
}

void DecodeStream::OnDone(const grpc::Status& status) {
  listener_->OnDecodeEnd(attempt_, worker_, FromGrpcStatus(status));
  listener_ = nullptr;
  const auto last = std::move(self_);  // may destroy this at the end of the scope
}

}  // namespace baton
