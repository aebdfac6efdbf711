#include "loadtest/target_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace baton {
namespace {

using ::testing::HasSubstr;

TEST(TargetAddress, BothFormsAreParsed) {
  const auto grpc = ParseTargetAddress("grpc://127.0.0.1:8090");
  ASSERT_TRUE(grpc.ok()) << grpc.status();
  EXPECT_FALSE(grpc->is_http);
  EXPECT_EQ(grpc->host_port.host, "127.0.0.1");
  EXPECT_EQ(grpc->host_port.port, 8090);
  const auto http = ParseTargetAddress("http://localhost:8080/v1/");
  ASSERT_TRUE(http.ok()) << http.status();
  EXPECT_TRUE(http->is_http);
  EXPECT_EQ(http->path, "/v1");
  const auto plain = ParseTargetAddress("http://[::1]/v1");
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(plain->host_port.host, "::1");
  EXPECT_EQ(plain->host_port.port, 80);
}

TEST(TargetAddress, EncryptionIsASchemeWithAPortOfItsOwn) {
  const auto https = ParseTargetAddress("https://a/v1/");
  ASSERT_TRUE(https.ok()) << https.status();
  EXPECT_TRUE(https->is_http);
  EXPECT_TRUE(https->is_https);
  EXPECT_EQ(https->host_port.port, 443);
  EXPECT_EQ(https->path, "/v1");
  EXPECT_FALSE(ParseTargetAddress("http://a/v1")->is_https);
}

TEST(TargetAddress, OtherTextIsRefused) {
  for (const char* text : {"", "127.0.0.1:8090", "ftp://a:1/v1", "http://", "https://", "grpc://",
                           "http://a:1/v1?x=1", "http://a:1/v1 HTTP/1.1\r\nX: y"}) {
    EXPECT_THAT(std::string(ParseTargetAddress(text).status().message()),
                HasSubstr("must be grpc://HOST:PORT or http://HOST:PORT/v1"))
        << text;
  }
  for (const char* text : {"grpc://a:0", "http://a:70000/v1", "grpc://a"}) {
    EXPECT_FALSE(ParseTargetAddress(text).ok()) << text;
  }
}

}  // namespace
}  // namespace baton
