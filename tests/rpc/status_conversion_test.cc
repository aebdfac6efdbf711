#include "rpc/status_conversion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace baton {
namespace {

TEST(StatusConversion, EveryCodeSurvivesARoundTrip) {
  for (int code = 0; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), code == 0 ? "" : "why");
    EXPECT_EQ(FromGrpcStatus(ToGrpcStatus(status)), status) << code;
  }
}

TEST(StatusConversion, AnUnknownCodeBecomesUnknown) {
  const grpc::Status status(static_cast<grpc::StatusCode>(99), "odd");
  EXPECT_EQ(FromGrpcStatus(status).code(), absl::StatusCode::kUnknown);
}

TEST(StatusConversion, MessagesOfGrpcItselfSayMore) {
  EXPECT_THAT(FromGrpcStatus({grpc::StatusCode::UNIMPLEMENTED, ""}).message(),
              testing::HasSubstr("does not serve this call"));
  EXPECT_EQ(FromGrpcStatus({grpc::StatusCode::UNIMPLEMENTED, "why"}).message(), "why");
  EXPECT_EQ(FromGrpcStatus({grpc::StatusCode::DEADLINE_EXCEEDED, "Deadline Exceeded"}).message(),
            "no answer came before the deadline");
}

TEST(StatusConversion, LongMessagesAreCut) {
  const absl::Status status = absl::InternalError(std::string(100'000, 'x'));
  EXPECT_EQ(ToGrpcStatus(status).error_message().size(), kMaxStatusMessageBytes);
}

}  // namespace
}  // namespace baton
