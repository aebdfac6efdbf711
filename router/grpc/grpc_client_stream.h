// ClientStream for a client that called Generate over gRPC.
//
// Life: call Connect, then Hold, then hand the stream to gRPC. Thread safety: as ClientStream.
#pragma once

#include <memory>
#include <mutex>

#include "router/grpc/client_stream.h"
#include "rpc/stream_writer.h"

namespace baton {

class GrpcClientStream final : public StreamWriter<grpc::ByteBuffer>, public ClientStream {
 public:
  // As StreamWriter.
  GrpcClientStream(size_t max_queued, grpc::CallbackServerContext* context)
      : StreamWriter(max_queued, context) {}

  // REQUIRES: called once, before Hold.
  void Connect(std::shared_ptr<ClientListener> listener);

  bool Send(const v1::GenerateResponse& event) override;
  void End(const absl::Status& status) override;
  void CallOff(absl::Status status) override;

 private:
  void OnCalledOff() override;
  void OnStreamDone() override;
  std::shared_ptr<ClientListener> listener();

  std::mutex listener_mutex_;
  std::shared_ptr<ClientListener> listener_;  // until gRPC is done with the call
};

}  // namespace baton
