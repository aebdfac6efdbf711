#include "rpc/grpc_log.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(GrpcLog, TakesOneLineInEachIntervalAndCountsTheOthers) {
  LineInterval interval(100);
  EXPECT_EQ(interval.Take(1000), 0);
  EXPECT_LT(interval.Take(1001), 0);
  EXPECT_LT(interval.Take(1099), 0);
  EXPECT_EQ(interval.Take(1100), 2);
  EXPECT_EQ(interval.Take(1300), 0);
}

TEST(GrpcLog, LeavesOutNamesThatTheCertificateDoesNotHave) {
  EXPECT_TRUE(IsHarmlessGrpcLine("No match found for server name: 127.0.0.1."));
  EXPECT_FALSE(IsHarmlessGrpcLine("Handshake failed with fatal error SSL_ERROR_SSL"));
}

}  // namespace
}  // namespace baton
