#include "http/http_response_head.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

HttpResponse Text(int status = 200) {
  return {.status = status, .content_type = "text/plain", .headers = {}, .body = ""};
}

TEST(MakeHttpHead, AWholeBodyHasALength) {
  const HttpHead head = MakeHttpHead(Text(), 5, {.request_id = "r", .keep_alive = true});
  EXPECT_THAT(head.text, StartsWith("HTTP/1.1 200 OK\r\nDate: "));
  EXPECT_THAT(head.text, HasSubstr("\r\nContent-Length: 5\r\n"));
  EXPECT_THAT(head.text, HasSubstr("\r\nContent-Type: text/plain\r\n"));
  EXPECT_THAT(head.text, HasSubstr("\r\nx-request-id: r\r\n"));
  EXPECT_THAT(head.text, Not(HasSubstr("Connection")));
  EXPECT_TRUE(head.text.ends_with("\r\n\r\n"));
  EXPECT_EQ(head.body, HttpBodyFraming::kLength);
  EXPECT_TRUE(head.keep_alive);
}

TEST(MakeHttpHead, AStreamedBodyIsChunkedOrEndsWithTheConnection) {
  const HttpHead chunked =
      MakeHttpHead(Text(), std::nullopt, {.request_id = "", .keep_alive = true});
  EXPECT_THAT(chunked.text, HasSubstr("Transfer-Encoding: chunked"));
  EXPECT_EQ(chunked.body, HttpBodyFraming::kChunked);
  const HttpHead old = MakeHttpHead(Text(), std::nullopt,
                                    {.request_id = "", .version_1_0 = true, .keep_alive = true});
  EXPECT_THAT(old.text, Not(HasSubstr("Transfer-Encoding")));
  EXPECT_THAT(old.text, HasSubstr("Connection: close"));
  EXPECT_EQ(old.body, HttpBodyFraming::kClose);
  EXPECT_FALSE(old.keep_alive);
}

TEST(MakeHttpHead, AnOldClientIsToldThatItsConnectionStays) {
  const HttpHead head =
      MakeHttpHead(Text(), 0, {.request_id = "", .version_1_0 = true, .keep_alive = true});
  EXPECT_THAT(head.text, HasSubstr("Connection: keep-alive"));
  EXPECT_TRUE(head.keep_alive);
}

TEST(MakeHttpHead, AHeadRequestGetsTheLengthAndNoBody) {
  const HttpHead head = MakeHttpHead(Text(), 5, {.request_id = "", .head_only = true});
  EXPECT_THAT(head.text, HasSubstr("Content-Length: 5"));
  EXPECT_EQ(head.body, HttpBodyFraming::kNone);
}

TEST(MakeHttpHead, NoContentHasNoLength) {
  const HttpHead head = MakeHttpHead(Text(204), 0, {.request_id = ""});
  EXPECT_THAT(head.text, Not(HasSubstr("Content-Length")));
  EXPECT_EQ(head.body, HttpBodyFraming::kNone);
}

TEST(MakeHttpHead, AHeadersValueCannotBeginAnotherHeader) {
  HttpResponse response = Text();
  response.headers.push_back({"X", "a\r\nSet-Cookie: b"});
  EXPECT_THAT(MakeHttpHead(response, 0, {.request_id = ""}).text,
              HasSubstr("X: a  Set-Cookie: b\r\n"));
}

TEST(MakeHttpHead, ADrainingServerKeepsNoConnection) {
  const auto draining = std::make_shared<std::atomic<bool>>(true);
  const HttpHead head =
      MakeHttpHead(Text(), 0, {.request_id = "", .keep_alive = true, .draining = draining});
  EXPECT_FALSE(head.keep_alive);
  EXPECT_THAT(head.text, HasSubstr("Connection: close"));
}

TEST(HttpChunk, BeginsWithItsSizeInHexadecimal) {
  EXPECT_EQ(HttpChunk(std::string(26, 'x')), "1a\r\n" + std::string(26, 'x') + "\r\n");
}

TEST(HttpDate, HasTheFormOfTheStandard) {
  EXPECT_THAT(HttpDate(), testing::MatchesRegex("[A-Z][a-z][a-z], [0-9][0-9] [A-Z][a-z][a-z] "
                                                "[0-9]+ [0-9][0-9]:[0-9][0-9]:[0-9][0-9] GMT"));
}

}  // namespace
}  // namespace baton
