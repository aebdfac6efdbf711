#include "http/cors.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

HttpRequest From(std::vector<HttpHeader> headers, std::string method = "GET") {
  return {.id = "",
          .method = std::move(method),
          .path = "/",
          .query = "",
          .headers = std::move(headers),
          .body = ""};
}

std::string Allowed(std::string_view origins, const HttpRequest& request) {
  for (const HttpHeader& header : CorsHeaders(origins, request)) {
    if (header.name == "Access-Control-Allow-Origin") return header.value;
  }
  return "";
}

TEST(Cors, OnlyListedOriginsAreAllowed) {
  const HttpRequest page = From({{"Origin", "https://a.example"}});
  EXPECT_EQ(Allowed("", page), "");
  EXPECT_EQ(Allowed("https://b.example", page), "");
  EXPECT_EQ(Allowed("https://b.example, https://a.example", page), "https://a.example");
  EXPECT_EQ(Allowed("*", page), "*");
  EXPECT_TRUE(CorsHeaders("*", From({})).empty());
}

TEST(Cors, APreflightAsksForAMethod) {
  const std::vector<HttpHeader> asks = {{"Origin", "https://a.example"},
                                        {"Access-Control-Request-Method", "POST"}};
  EXPECT_TRUE(IsPreflight(From(asks, "OPTIONS")));
  EXPECT_FALSE(IsPreflight(From(asks, "GET")));
  EXPECT_FALSE(IsPreflight(From({asks[0]}, "OPTIONS")));
}

TEST(Cors, APreflightGetsTheHeadersThatItAsksFor) {
  const auto headers =
      PreflightHeaders("POST", From({{"Access-Control-Request-Headers", "x-stainless-os"}}));
  EXPECT_EQ(headers[0].value, "POST");
  EXPECT_EQ(headers[1].value, "x-stainless-os");
}

}  // namespace
}  // namespace baton
