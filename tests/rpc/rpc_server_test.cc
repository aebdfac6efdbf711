#include "rpc/rpc_server.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(ParseHostPort, SplitsAtTheLastColon) {
  EXPECT_EQ(ParseHostPort("localhost:80")->host, "localhost");
  EXPECT_EQ(ParseHostPort("localhost:80")->port, 80);
  EXPECT_EQ(ParseHostPort("[::1]:0")->host, "[::1]");
}

TEST(ParseHostPort, RefusesWhatIsNotOne) {
  for (const char* text : {"", "80", ":80", "a:", "a:b", "a:-1", "a:65536"}) {
    EXPECT_EQ(ParseHostPort(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(RpcServer, PicksAPortAndRefusesOneThatIsTaken) {
  const auto first = RpcServer::Start({.listen = "127.0.0.1:0"}, {});
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_GT((*first)->port(), 0);
  const auto second = RpcServer::Start({.listen = (*first)->address()}, {});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace baton
