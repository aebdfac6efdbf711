#include "router/http/error_response.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

std::string HeaderOf(const HttpResponse& response, std::string_view name) {
  for (const HttpHeader& header : response.headers) {
    if (header.name == name) return header.value;
  }
  return "";
}

TEST(ErrorResponse, SaysWhenToTryAgainAndWhetherTo) {
  ApiError error = {
      .status = 503, .message = "full", .type = "overloaded", .param = "", .code = ""};
  EXPECT_EQ(HeaderOf(ErrorResponse(error), "Retry-After"), "");
  error.retry_after_s = 7;
  error.should_retry = false;
  const HttpResponse response = ErrorResponse(error);
  EXPECT_EQ(response.status, 503);
  EXPECT_EQ(response.content_type, "application/json");
  EXPECT_EQ(HeaderOf(response, "Retry-After"), "7");
  EXPECT_EQ(HeaderOf(response, "x-should-retry"), "false");
}

}  // namespace
}  // namespace baton
