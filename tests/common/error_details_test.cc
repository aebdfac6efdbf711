#include "common/error_details.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(ErrorDetails, AStatusCarriesThemBesideItsMessage) {
  absl::Status status = absl::InvalidArgumentError("top_p is 2");
  EXPECT_EQ(ErrorParam(status), "");
  EXPECT_EQ(RetryAfterMs(status), std::nullopt);
  EXPECT_FALSE(IsTenantLimit(status));
  SetErrorParam(status, "top_p");
  SetRetryAfterMs(status, 1500);
  SetTenantLimit(status);
  const absl::Status copy = status;
  EXPECT_EQ(copy.message(), "top_p is 2");
  EXPECT_EQ(ErrorParam(copy), "top_p");
  EXPECT_EQ(RetryAfterMs(copy), 1500);
  EXPECT_TRUE(IsTenantLimit(copy));
}

TEST(ErrorDetails, OkHasNone) {
  absl::Status status;
  SetErrorParam(status, "top_p");
  SetRetryAfterMs(status, 1);
  SetTenantLimit(status);
  EXPECT_EQ(status, absl::OkStatus());
  EXPECT_EQ(ErrorParam(status), "");
  EXPECT_EQ(RetryAfterMs(status), std::nullopt);
  EXPECT_FALSE(IsTenantLimit(status));
}

}  // namespace
}  // namespace baton
