#include "common/address_options.h"

#include <gtest/gtest.h>

#include <string>

namespace baton {
namespace {

TEST(AddressOptions, AWrongAddressIsNamedWithItsOption) {
  const std::string good = "127.0.0.1:0";
  const std::string off;
  EXPECT_TRUE(CheckAddresses({{"--listen", good, false}, {"--metrics-listen", off}}).ok());
  EXPECT_EQ(CheckAddresses({{"--listen", good, false}, {"--metrics-listen", "foo"}}).message(),
            "--metrics-listen: \"foo\" is not HOST:PORT with a port of 0 to 65535");
  EXPECT_TRUE(absl::IsInvalidArgument(CheckAddresses({{"--listen", off, false}})));
}

}  // namespace
}  // namespace baton
