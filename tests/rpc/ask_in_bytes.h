// Calls of a test whose messages are bytes.
#pragma once

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "rpc/channel.h"

namespace baton {

inline constexpr char kHealthCheck[] = "/grpc.health.v1.Health/Check";

// Sends one message and returns the first answer, both as bytes on the wire. Stubs of gRPC's
// standard services are not available here.
inline std::pair<grpc::Status, std::string> AskInBytes(
    const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
    const std::string& request) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(DeadlineIn(20'000));
  grpc::CompletionQueue queue;
  const auto call = stub.PrepareCall(&context, method, &queue);
  void* tag = nullptr;
  bool ok = false;
  call->StartCall(nullptr);
  EXPECT_TRUE(queue.Next(&tag, &ok));
  const grpc::Slice slice(request);
  call->WriteLast(grpc::ByteBuffer(&slice, 1), grpc::WriteOptions(), nullptr);
  EXPECT_TRUE(queue.Next(&tag, &ok));
  grpc::ByteBuffer answer;
  call->Read(&answer, nullptr);
  EXPECT_TRUE(queue.Next(&tag, &ok));
  grpc::Slice bytes;
  EXPECT_TRUE(!ok || answer.DumpToSingleSlice(&bytes).ok());
  grpc::Status status;
  call->Finish(&status, nullptr);
  EXPECT_TRUE(queue.Next(&tag, &ok));
  return {status, std::string(bytes.begin(), bytes.end())};
}

}  // namespace baton
