#include "kvtransfer/sockets/transfer_address.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

using ::testing::ElementsAre;

TEST(TransferAddress, KeepsTheReceiversOrderAndOnlySupportedTransports) {
  const std::string both = "shm:a,tcp:1.2.3.4:5,tcp:[::1]:6";
  EXPECT_THAT(*UsableAddresses(both, true, true),
              ElementsAre("shm:a", "tcp:1.2.3.4:5", "tcp:[::1]:6"));
  EXPECT_THAT(*UsableAddresses(both, true, false), ElementsAre("tcp:1.2.3.4:5", "tcp:[::1]:6"));
  EXPECT_THAT(*UsableAddresses(both, false, true), ElementsAre("shm:a"));
}

TEST(TransferAddress, RefusesMalformedAndUnusableAddresses) {
  for (const char* addresses :
       {"", ",", "shm:a,", "shm:a,tcp:", "shm:,tcp:1.2.3.4:5", "loopback:x", "shm:a,pigeon:7"}) {
    EXPECT_EQ(UsableAddresses(addresses, true, true).status().code(),
              absl::StatusCode::kInvalidArgument)
        << addresses;
  }
  EXPECT_FALSE(UsableAddresses("shm:a", true, false).ok());
  std::string many = "shm:a";
  for (size_t i = 1; i < kMaxAddresses; ++i) many += ",shm:a";
  EXPECT_TRUE(UsableAddresses(many, true, true).ok());
  EXPECT_FALSE(UsableAddresses(many + ",shm:a", true, true).ok());
  EXPECT_FALSE(UsableAddresses("tcp:1.2.3.4:5", false, true).ok());
}

// A ticket is untrusted. Limits must apply regardless of how many addresses are usable here.
TEST(TransferAddress, RefusesTooLongOrTooManyAddressesEvenIfOneIsUsable) {
  std::string many = "tcp:1.2.3.4:5";
  for (size_t i = 0; i < kMaxAddresses; ++i) many += ",shm:a";
  EXPECT_THAT(UsableAddresses(many, true, false).status().message(),
              ::testing::HasSubstr("9 ways to the receiver, the limit is 8"));
  const std::string padded = "tcp:127.0.0.1:" + std::string(6000, '0') + "80";
  EXPECT_THAT(UsableAddresses(padded, true, true).status().message(),
              ::testing::HasSubstr("6016 bytes, the limit is 512"));
}

TEST(TransferAddress, AdvertisesAReachableAddress) {
  const FileDescriptor listener = *ListenTcp(*ResolveHostPort("0.0.0.0:0"));
  EXPECT_EQ(AdvertisedAddress(listener, "").status().code(), absl::StatusCode::kInvalidArgument);
  const SocketAddress address = *AdvertisedAddress(listener, "127.0.0.1");
  EXPECT_EQ(address.host(), "127.0.0.1");
  EXPECT_GT(address.port(), 0);
  EXPECT_TRUE(StartConnect(FormatTcpAddress(address)).ok());
  EXPECT_EQ(FormatTcpAddress(*AdvertisedAddress(listener, "127.0.0.1:77")), "tcp:127.0.0.1:77");
  EXPECT_EQ(AdvertisedAddress(listener, "::1")->port(), address.port());
  EXPECT_EQ(AdvertisedAddress(listener, "[::1]")->host(), "::1");
  EXPECT_EQ(FormatTcpAddress(*AdvertisedAddress(listener, "[::1]:77")), "tcp:[::1]:77");
}

}  // namespace
}  // namespace baton
