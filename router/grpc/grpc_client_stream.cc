#include "router/grpc/grpc_client_stream.h"

#include <utility>

#include "rpc/raw_message.h"
#include "rpc/status_conversion.h"

namespace baton {

void GrpcClientStream::Connect(std::shared_ptr<ClientListener> listener) {
  std::lock_guard lock(listener_mutex_);
  listener_ = std::move(listener);
}

std::shared_ptr<ClientListener> GrpcClientStream::listener() {
  std::lock_guard lock(listener_mutex_);
  return listener_;
}

bool GrpcClientStream::Send(const v1::GenerateResponse& event) {
  return StreamWriter::Send(ToRaw(event));
}

void GrpcClientStream::End(const absl::Status& status) { StreamWriter::End(ToGrpcStatus(status)); }

void GrpcClientStream::CallOff(absl::Status status) {
  if (const auto called = listener()) called->CallOff(std::move(status));
}

void GrpcClientStream::OnCalledOff() {
  if (const auto called = listener()) called->OnClientGone();
}

void GrpcClientStream::OnStreamDone() {
  std::shared_ptr<ClientListener> last;
  std::lock_guard lock(listener_mutex_);
  // Destroyed after the lock is released: it may hold the last reference to other objects.
  last.swap(listener_);
}

}  // namespace baton
