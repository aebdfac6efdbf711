#include "rpc/rpc_server_options.h"

#include <gtest/gtest.h>

#include <string>

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

TEST(AdvertisedHostPort, TakesThePortThatIsNamedAndElseTheOneThatIsServed) {
  const auto at = [](const char* text) {
    const HostPort advertised = AdvertisedHostPort(text, 7);
    return advertised.host + " " + std::to_string(advertised.port);
  };
  EXPECT_EQ(at("worker-3"), "worker-3 7");
  EXPECT_EQ(at("gateway:9000"), "gateway 9000");
  EXPECT_EQ(at("[::1]"), "[::1] 7");
  EXPECT_EQ(at("[::1]:80"), "[::1] 80");
  EXPECT_EQ(at("fe80::1"), "fe80::1 7");
}

}  // namespace
}  // namespace baton
