#include "rpc/rpc_server.h"

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "rpc/channel.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

// Sends one message and returns the first answer, both as bytes on the wire. Stubs of gRPC's
// standard services are not available here.
std::pair<grpc::Status, std::string> AskInBytes(const std::shared_ptr<grpc::Channel>& channel,
                                                const std::string& method,
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

constexpr char kCheck[] = "/grpc.health.v1.Health/Check";

TEST(RpcServer, ReportsItsHealthForTheServerAndByServiceName) {
  const auto server = *RpcServer::Start({.listen = "127.0.0.1:0"}, {}, {"a"});
  const auto channel = MakeChannel(server->address());
  const std::string of_a =
      "\x0a\x01"
      "a";  // service = "a"
  EXPECT_EQ(AskInBytes(channel, kCheck, "").second, "\x08\x02") << "NOT_SERVING";
  EXPECT_EQ(AskInBytes(channel, kCheck, of_a).second, "\x08\x02");
  server->SetServing(true);
  EXPECT_EQ(AskInBytes(channel, kCheck, "").second, "\x08\x01") << "SERVING";
  EXPECT_EQ(AskInBytes(channel, kCheck, of_a).second, "\x08\x01");
  EXPECT_EQ(AskInBytes(channel, kCheck,
                       "\x0a\x01"
                       "b")
                .first.error_code(),
            grpc::StatusCode::NOT_FOUND);
}

TEST(RpcServer, ListsItsServices) {
  const auto server = *RpcServer::Start({.listen = "127.0.0.1:0"}, {});
  const auto [status, services] =
      AskInBytes(MakeChannel(server->address()),
                 "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
                 std::string("\x3a\x00", 2));  // list_services = ""
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_THAT(services, HasSubstr("grpc.reflection.v1alpha.ServerReflection"));
}

TEST(RpcServer, PicksAPortAndRefusesOneThatIsTaken) {
  const auto first = RpcServer::Start({.listen = "127.0.0.1:0"}, {});
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_GT((*first)->port(), 0);
  const auto second = RpcServer::Start({.listen = (*first)->address()}, {});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
}

// Otherwise a silent peer would hold a descriptor forever.
TEST(RpcServer, ClosesAConnectionWithoutCalls) {
  const auto server = RpcServer::Start({.listen = "127.0.0.1:0", .idle_connection_ms = 300}, {});
  ASSERT_TRUE(server.ok()) << server.status();
  const auto channel = MakeChannel((*server)->address());
  ASSERT_TRUE(channel->WaitForConnected(DeadlineIn(20'000)));
  EXPECT_TRUE(channel->WaitForStateChange(GRPC_CHANNEL_READY, DeadlineIn(20'000)));
}

TEST(RpcServer, AConnectionOfTheGreatestAgeGetsNoNewCallsAndTheNextConnectionDoes) {
  const auto server = RpcServer::Start({.listen = "127.0.0.1:0", .max_connection_age_ms = 300}, {});
  ASSERT_TRUE(server.ok()) << server.status();
  const auto channel = MakeChannel((*server)->address());
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(channel->WaitForConnected(DeadlineIn(20'000)));
    EXPECT_TRUE(AskInBytes(channel, kCheck, "").first.ok());
    EXPECT_TRUE(channel->WaitForStateChange(GRPC_CHANNEL_READY, DeadlineIn(20'000)));
  }
}

}  // namespace
}  // namespace baton
