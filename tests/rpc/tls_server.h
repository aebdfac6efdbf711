// Calls to the health service and to unknown methods of a server, as bytes.
//
// Thread safety: belongs to one thread.
#pragma once

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "rpc/channel.h"

namespace baton {

// Makes a unary call with an empty request. `certificate`: set to the server's, in PEM form.
inline grpc::Status CallEmpty(const std::shared_ptr<grpc::Channel>& channel,
                              const std::string& method, std::string* certificate = nullptr) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(DeadlineIn(20'000));
  grpc::CompletionQueue queue;
  const grpc::Slice nothing;
  const auto call = stub.PrepareUnaryCall(&context, method, grpc::ByteBuffer(&nothing, 1), &queue);
  call->StartCall();
  grpc::ByteBuffer answer;
  grpc::Status status;
  call->Finish(&answer, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  (void)queue.Next(&tag, &ok);
  const std::shared_ptr<const grpc::AuthContext> connection = context.auth_context();
  if (certificate != nullptr && connection != nullptr) {
    for (const grpc::string_ref& pem : connection->FindPropertyValues("x509_pem_cert")) {
      *certificate = std::string(pem.data(), pem.size());
    }
  }
  return status;
}

}  // namespace baton
