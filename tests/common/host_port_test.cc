#include "common/host_port.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace baton {
namespace {

TEST(ParseHostPort, SplitsAtTheLastColonAndTakesBracketsAway) {
  EXPECT_EQ(ParseHostPort("localhost:80")->host, "localhost");
  EXPECT_EQ(ParseHostPort("localhost:80")->port, 80);
  EXPECT_EQ(ParseHostPort("[::1]:0")->host, "::1");
  EXPECT_EQ(ParseHostPort("[fe80::1%eth0]:7")->host, "fe80::1%eth0");
}

TEST(ParseHostPort, RefusesWhatIsNotOne) {
  for (const char* text : {"", "80", "garbage", ":80", "a:", "a:b", "a:-1", "a:65536", "::1",
                           "::1:80", "[::1]", "[]:80", "[::1:80", "::1]:80", "dns:///a:80"}) {
    EXPECT_EQ(ParseHostPort(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
  EXPECT_THAT(ParseHostPort("::1:80").status().message(), testing::HasSubstr("brackets"));
}

TEST(ParseHostPort, SaysWhatToLeaveOutOfAUrl) {
  EXPECT_THAT(ParseHostPort("http://127.0.0.1:8090/v1").status().message(),
              testing::HasSubstr("leave out http://, as in 127.0.0.1:8090"));
  EXPECT_THAT(ParseHostPort("dns:///router:8090").status().message(),
              testing::HasSubstr("leave out dns:///, as in router:8090"));
}

TEST(CheckHostPort, RefusesPort0) {
  EXPECT_TRUE(CheckHostPort("[::1]:80").ok());
  EXPECT_THAT(CheckHostPort("a:0").message(), testing::HasSubstr("\"a:0\""));
  EXPECT_FALSE(CheckHostPort("garbage").ok());
}

TEST(JoinHostPort, RoundTripsThroughParseHostPort) {
  EXPECT_EQ(JoinHostPort("localhost", 80), "localhost:80");
  EXPECT_EQ(JoinHostPort("::1", 80), "[::1]:80");
  EXPECT_EQ(JoinHostPort("[::1]", 80), "[::1]:80");
  for (const char* text : {"localhost:80", "10.0.0.7:0", "[::1]:80", "[::]:65535"}) {
    const HostPort parsed = *ParseHostPort(text);
    EXPECT_EQ(JoinHostPort(parsed.host, parsed.port), text);
  }
}

TEST(AdvertisedHostPort, UsesTheGivenPortOrElseTheServedPort) {
  const auto at = [](const char* text) {
    const HostPort advertised = AdvertisedHostPort(text, 7);
    return JoinHostPort(advertised.host, advertised.port);
  };
  EXPECT_EQ(at("worker-3"), "worker-3:7");
  EXPECT_EQ(at("gateway:9000"), "gateway:9000");
  EXPECT_EQ(at("[::1]"), "[::1]:7");
  EXPECT_EQ(at("::1"), "[::1]:7");
  EXPECT_EQ(at("[::1]:80"), "[::1]:80");
  EXPECT_EQ(at("fe80::1"), "[fe80::1]:7");
}

TEST(IsWildcardHost, KnowsTheWildcardsOfBothFamilies) {
  EXPECT_TRUE(IsWildcardHost("0.0.0.0"));
  EXPECT_TRUE(IsWildcardHost("::"));
  EXPECT_FALSE(IsWildcardHost("127.0.0.1"));
  EXPECT_FALSE(IsWildcardHost("::1"));
}

}  // namespace
}  // namespace baton
