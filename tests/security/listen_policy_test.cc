#include "security/listen_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace baton {
namespace {

using ::testing::HasSubstr;

TEST(ListenPolicy, KnowsLoopback) {
  for (const char* host : {"127.0.0.1", "127.9.8.7", "::1", "::ffff:127.0.0.1", "localhost"}) {
    EXPECT_TRUE(IsLoopbackHost(host)) << host;
  }
  for (const char* host :
       {"0.0.0.0", "::", "10.0.0.1", "128.0.0.1", "::ffff:10.0.0.1", "fe80::1", "no such host"}) {
    EXPECT_FALSE(IsLoopbackHost(host)) << host;
  }
}

TEST(ListenPolicy, RefusesAPortThatOtherMachinesReach) {
  EXPECT_TRUE(CheckPlaintextListen("--listen", "", "x").ok());
  EXPECT_TRUE(CheckPlaintextListen("--listen", "127.0.0.1:0", "x").ok());
  EXPECT_TRUE(CheckPlaintextListen("--listen", "[::1]:80", "x").ok());
  for (const char* listen : {"0.0.0.0:8090", "[::]:0", "10.0.0.1:1"}) {
    const absl::Status refused = CheckPlaintextListen("--listen", listen, "--tls-cert");
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << listen;
    EXPECT_THAT(std::string(refused.message()), HasSubstr(std::string("--listen ") + listen));
    EXPECT_THAT(std::string(refused.message()), HasSubstr("--tls-cert, or --plaintext"));
  }
  EXPECT_EQ(CheckPlaintextListen("--listen", "nowhere", "x").code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace baton
