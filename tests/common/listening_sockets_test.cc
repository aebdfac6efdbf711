#include "common/listening_sockets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(ListenAt, GivesEveryAddressOfAHostTheSamePort) {
  const absl::StatusOr<ListeningSockets> listening = ListenAt({.host = "localhost", .port = 0});
  ASSERT_TRUE(listening.ok()) << listening.status();
  EXPECT_GE(listening->sockets.size(), 1);
  EXPECT_GT(listening->port, 0);
}

TEST(ListenAt, AWildcardIsOneSocketForBothFamilies) {
  const absl::StatusOr<ListeningSockets> listening = ListenAt({.host = "0.0.0.0", .port = 0});
  ASSERT_TRUE(listening.ok()) << listening.status();
  EXPECT_EQ(listening->sockets.size(), 1);
  const absl::StatusOr<ListeningSockets> taken =
      ListenAt({.host = "127.0.0.1", .port = listening->port});
  EXPECT_EQ(taken.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(taken.status().message(), testing::HasSubstr("Address already in use"));
}

TEST(ListenAt, NamesAnInvalidHost) {
  const absl::Status status = ListenAt({.host = "no such host", .port = 0}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), testing::HasSubstr("no such host"));
}

}  // namespace
}  // namespace baton
