#include "http/http_response_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>

namespace baton {
namespace {

using ::testing::HasSubstr;

struct Parsed {
  int status = 0;
  bool complete = false;
  bool keep_alive = false;
  std::string body;
  std::string problem;
  std::string rest;  // bytes behind the answer
};

// Feeds `bytes` in pieces of `piece` bytes, as a connection does.
Parsed Parse(std::string_view bytes, size_t piece, bool ends = false) {
  Parsed out;
  HttpResponseParser parser([&](std::string_view body) { out.body += body; });
  while (!bytes.empty()) {
    const size_t count = std::min(piece, bytes.size());
    out.rest.append(bytes.substr(0, count));
    bytes.remove_prefix(count);
    out.rest.erase(0, parser.Feed(out.rest));
  }
  if (ends) parser.FeedEnd();
  out.status = parser.status();
  out.complete = parser.complete();
  out.keep_alive = out.complete && parser.keep_alive();
  out.problem = parser.problem();
  return out;
}

// Parses whole, in pieces and byte by byte, and expects the same.
Parsed ParseAll(std::string_view bytes, bool ends = false) {
  const Parsed whole = Parse(bytes, std::string::npos, ends);
  for (const size_t piece : {1, 3, 1000}) {
    const Parsed split = Parse(bytes, piece, ends);
    EXPECT_EQ(whole.status, split.status) << bytes;
    EXPECT_EQ(whole.complete, split.complete) << bytes;
    EXPECT_EQ(whole.keep_alive, split.keep_alive) << bytes;
    EXPECT_EQ(whole.body, split.body) << bytes;
    EXPECT_EQ(whole.problem, split.problem) << bytes;
    EXPECT_TRUE(!whole.complete || whole.rest == split.rest) << bytes;
  }
  return whole;
}

TEST(HttpResponseParser, ReadsABodyOfAGivenLength) {
  const Parsed parsed = ParseAll("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 404");
  EXPECT_EQ(parsed.status, 200);
  EXPECT_TRUE(parsed.complete);
  EXPECT_TRUE(parsed.keep_alive);
  EXPECT_EQ(parsed.body, "hello");
  EXPECT_EQ(parsed.rest, "HTTP/1.1 404");
}

TEST(HttpResponseParser, ReadsChunksAndSkipsTheirExtensionsAndTrailers) {
  const Parsed parsed = ParseAll(
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3;name=value\r\nabc\r\n0a\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n");
  EXPECT_TRUE(parsed.complete) << parsed.problem;
  EXPECT_EQ(parsed.body, "abc0123456789");
  EXPECT_EQ(parsed.rest, "");
}

TEST(HttpResponseParser, AnAnswerWithoutALengthEndsWithTheConnection) {
  const std::string text = "HTTP/1.1 200 OK\r\n\r\nall of it";
  EXPECT_FALSE(ParseAll(text).complete);
  const Parsed parsed = ParseAll(text, /*ends=*/true);
  EXPECT_TRUE(parsed.complete);
  EXPECT_FALSE(parsed.keep_alive);
  EXPECT_EQ(parsed.body, "all of it");
}

TEST(HttpResponseParser, AnAnswerThatEndsTooEarlyIsAProblem) {
  for (const char* text : {"", "HTTP/1.1 20", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell",
                           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"}) {
    const Parsed parsed = ParseAll(text, /*ends=*/true);
    EXPECT_FALSE(parsed.complete) << text;
    EXPECT_EQ(parsed.problem, "the server closed the connection too early") << text;
  }
}

TEST(HttpResponseParser, SkipsInterimAnswers) {
  const Parsed parsed = ParseAll(
      "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
      "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(parsed.status, 204);
  EXPECT_TRUE(parsed.complete);
  EXPECT_FALSE(parsed.keep_alive);
}

TEST(HttpResponseParser, RefusesWhatIsNoAnswer) {
  for (const char* text :
       {"GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 abc\r\n\r\n", "\r\n\r\n", "SSH-2.0\r\n\r\n"}) {
    EXPECT_THAT(ParseAll(text).problem, HasSubstr("this is not an HTTP answer")) << text;
  }
}

TEST(HttpResponseParser, RefusesBytesBetweenChunks) {
  const std::string head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const char* body : {"1\r\nab\r\n0\r\n\r\n", "1\r\nabcdef\r\n0\r\n\r\n", "x\r\n"}) {
    const Parsed parsed = ParseAll(head + body);
    EXPECT_FALSE(parsed.complete) << body;
    EXPECT_NE(parsed.problem, "") << body;
  }
}

TEST(HttpResponseParser, LimitsWhatMustBeKept) {
  const std::string head = "HTTP/1.1 200 OK\r\nX: " + std::string(64 << 10, 'x') + "\r\n\r\n";
  EXPECT_THAT(ParseAll(head).problem, HasSubstr("more than 65536 bytes"));
  const std::string chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
  const std::string fits(1000, 'x');
  const std::string too_long(1100, 'x');
  for (const std::string& end :
       {"3;" + too_long + "\r\nabc\r\n0\r\n\r\n", "3\r\nabc\r\n0\r\nT: " + too_long + "\r\n\r\n"}) {
    EXPECT_THAT(ParseAll(chunked + end).problem, HasSubstr("more than 1024 bytes"));
  }
  const Parsed parsed = ParseAll(chunked + "3;" + fits + "\r\nabc\r\n0\r\nT: " + fits + "\r\n\r\n");
  EXPECT_TRUE(parsed.complete) << parsed.problem;
  EXPECT_EQ(parsed.body, "abc");
}

TEST(HttpResponseParser, LimitsInterimAnswersAndRefusesOtherProtocols) {
  std::string text;
  for (int i = 0; i < 101; ++i) text += "HTTP/1.1 100 Continue\r\n\r\n";
  EXPECT_EQ(ParseAll(text).problem, "more than 100 interim answers, the limit");
  EXPECT_EQ(ParseAll("HTTP/1.1 101 Switching\r\n\r\n").problem,
            "the server switches to another protocol");
}

TEST(HttpResponseParser, PassesEachByteOfAChunkOnAtOnce) {
  const std::string begin = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n";
  EXPECT_EQ(Parse(begin + "a", std::string::npos).body, "a");
  EXPECT_EQ(Parse(begin + "ab", 1).body, "ab");
}

}  // namespace
}  // namespace baton
