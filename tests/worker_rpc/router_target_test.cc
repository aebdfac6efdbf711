#include "worker_rpc/router_target.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Hosts = std::vector<std::string>;

TEST(RouterTarget, IsOneAddressOrAName) {
  const RouterTarget one = *ParseRouterTarget("10.0.0.7:8090");
  EXPECT_EQ(one.host, "10.0.0.7");
  EXPECT_EQ(one.port, 8090);
  EXPECT_FALSE(one.by_name);
  const RouterTarget named = *ParseRouterTarget("dns:///routers.baton.svc:8090");
  EXPECT_EQ(named.host, "routers.baton.svc");
  EXPECT_EQ(named.port, 8090);
  EXPECT_TRUE(named.by_name);
}

TEST(RouterTarget, OtherFormsAreErrorsThatNameTheText) {
  for (const char* text : {"nowhere", "dns:///nowhere", "dns:///name:0", "dns://server/name:8090",
                           "http://name:8090", "dns:name", ""}) {
    const absl::Status status = ParseRouterTarget(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
  }
  EXPECT_THAT(std::string(ParseRouterTarget("dns://server/name:1").status().message()),
              HasSubstr("dns://server/name:1"));
}

TEST(RouterAddresses, AreTheGivenOnesAndTheLatestAnswerForEachName) {
  RouterAddresses addresses({*ParseRouterTarget("10.0.0.1:80"), *ParseRouterTarget("dns:///a:81"),
                             *ParseRouterTarget("dns:///b:82")});
  EXPECT_THAT(addresses.names(), ElementsAre("a", "b"));
  EXPECT_THAT(addresses.All(), ElementsAre("10.0.0.1:80"));
  addresses.OnResolved(1, Hosts{"10.0.0.3", "fd00::1"});
  EXPECT_THAT(addresses.All(), ElementsAre("10.0.0.1:80", "10.0.0.3:82", "[fd00::1]:82"));
  addresses.OnResolved(1, Hosts{"10.0.0.4"});
  addresses.OnResolved(0, Hosts{"10.0.0.4"});
  EXPECT_THAT(addresses.All(), ElementsAre("10.0.0.1:80", "10.0.0.4:81", "10.0.0.4:82"));
}

TEST(RouterAddresses, EachAddressIsThereOnce) {
  RouterAddresses addresses({*ParseRouterTarget("10.0.0.1:80"), *ParseRouterTarget("dns:///a:80")});
  addresses.OnResolved(0, Hosts{"10.0.0.1", "10.0.0.2"});
  EXPECT_THAT(addresses.All(), ElementsAre("10.0.0.1:80", "10.0.0.2:80"));
}

TEST(RouterAddresses, ANameThatCannotBeResolvedKeepsItsAddresses) {
  RouterAddresses addresses({*ParseRouterTarget("dns:///a:80")});
  EXPECT_THAT(addresses.All(), IsEmpty());
  addresses.OnResolved(0, absl::UnavailableError("no name server"));
  EXPECT_THAT(addresses.All(), IsEmpty());
  addresses.OnResolved(0, Hosts{"10.0.0.1"});
  addresses.OnResolved(0, absl::UnavailableError("no name server"));
  EXPECT_THAT(addresses.All(), ElementsAre("10.0.0.1:80"));
}

}  // namespace
}  // namespace baton
