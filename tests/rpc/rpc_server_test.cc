#include "rpc/rpc_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "rpc/channel.h"
#include "tests/rpc/ask_in_bytes.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

TEST(RpcServer, ReportsItsHealthForTheServerAndByServiceName) {
  const auto server = *RpcServer::Start({.listen = "127.0.0.1:0"}, {}, {"a"});
  const auto channel = MakeChannel(server->address());
  const std::string of_a =
      "\x0a\x01"
      "a";  // service = "a"
  EXPECT_EQ(AskInBytes(channel, kHealthCheck, "").second, "\x08\x02") << "NOT_SERVING";
  EXPECT_EQ(AskInBytes(channel, kHealthCheck, of_a).second, "\x08\x02");
  server->SetServing(true);
  EXPECT_EQ(AskInBytes(channel, kHealthCheck, "").second, "\x08\x01") << "SERVING";
  EXPECT_EQ(AskInBytes(channel, kHealthCheck, of_a).second, "\x08\x01");
  EXPECT_EQ(AskInBytes(channel, kHealthCheck,
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
    EXPECT_TRUE(AskInBytes(channel, kHealthCheck, "").first.ok());
    EXPECT_TRUE(channel->WaitForStateChange(GRPC_CHANNEL_READY, DeadlineIn(20'000)));
  }
}

}  // namespace
}  // namespace baton
