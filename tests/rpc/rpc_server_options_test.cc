#include "rpc/rpc_server_options.h"

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

}  // namespace
}  // namespace baton
