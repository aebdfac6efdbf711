#include "rpc/rpc_server.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(RpcServer, PicksAPortAndRefusesOneThatIsTaken) {
  const auto first = RpcServer::Start({.listen = "127.0.0.1:0"}, {});
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_GT((*first)->port(), 0);
  const auto second = RpcServer::Start({.listen = (*first)->address()}, {});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace baton
