#include "http/http_request_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace baton {
namespace {

using ::testing::HasSubstr;
using State = HttpRequestParser::State;

constexpr size_t kMaxHeaderBytes = 1024;
constexpr size_t kMaxBodyBytes = 100;

struct Parsed {
  State state = State::kReadingHead;
  HttpProblem problem;
  HttpRequest request;
  bool keep_alive = false;
  bool expects_continue = false;
  std::string rest;  // bytes behind the request
};

// Feeds `bytes` in pieces of `piece` bytes, as a connection does.
Parsed Parse(std::string_view bytes, size_t piece = std::string::npos) {
  HttpRequestParser parser(kMaxHeaderBytes);
  std::string unused;
  while (!bytes.empty()) {
    const size_t count = std::min(piece, bytes.size());
    unused.append(bytes.substr(0, count));
    bytes.remove_prefix(count);
    unused.erase(0, parser.Feed(unused));
    if (parser.state() == State::kHead) {
      parser.ExpectBody(kMaxBodyBytes);
      unused.erase(0, parser.Feed(unused));
    }
  }
  Parsed out = {.state = parser.state(),
                .problem = parser.problem(),
                .request = parser.request(),
                .keep_alive = parser.keep_alive(),
                .expects_continue = parser.expects_continue(),
                .rest = unused};
  return out;
}

int StatusOf(std::string_view bytes) {
  const Parsed whole = Parse(bytes);
  const Parsed split = Parse(bytes, 1);
  EXPECT_EQ(whole.state, split.state) << bytes;
  EXPECT_EQ(whole.problem.status, split.problem.status) << bytes;
  return whole.state == State::kFailed ? whole.problem.status : 0;
}

TEST(HttpRequestParser, ReadsARequestHoweverItArrives) {
  const std::string bytes =
      "POST /v1/x?a=b HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nX-A: b\r\n\r\nhelloGET";
  for (const size_t piece : {size_t{1}, size_t{2}, size_t{7}, bytes.size()}) {
    const Parsed parsed = Parse(bytes, piece);
    ASSERT_EQ(parsed.state, State::kComplete) << piece;
    EXPECT_EQ(parsed.request.method, "POST");
    EXPECT_EQ(parsed.request.path, "/v1/x");
    EXPECT_EQ(parsed.request.query, "a=b");
    EXPECT_EQ(parsed.request.body, "hello");
    EXPECT_EQ(*parsed.request.Header("x-a"), "b");
    EXPECT_TRUE(parsed.keep_alive);
    EXPECT_EQ(parsed.rest, "GET");
  }
}

TEST(HttpRequestParser, JoinsChunksAndDropsTheirTrailers) {
  const std::string bytes =
      "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3;name=value\r\nabc\r\nA\r\n0123456789\r\n0\r\nX-Trailer: t\r\n\r\nrest";
  for (const size_t piece : {size_t{1}, size_t{3}, bytes.size()}) {
    const Parsed parsed = Parse(bytes, piece);
    ASSERT_EQ(parsed.state, State::kComplete) << piece << parsed.problem.message;
    EXPECT_EQ(parsed.request.body, "abc0123456789");
    EXPECT_EQ(parsed.request.Header("x-trailer"), nullptr);
    EXPECT_EQ(parsed.rest, "rest");
  }
}

TEST(HttpRequestParser, KnowsWhenAConnectionStays) {
  EXPECT_TRUE(Parse("GET / HTTP/1.1\r\nHost: h\r\n\r\n").keep_alive);
  EXPECT_FALSE(Parse("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").keep_alive);
  EXPECT_FALSE(Parse("GET / HTTP/1.0\r\n\r\n").keep_alive);
  EXPECT_TRUE(Parse("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").keep_alive);
}

TEST(HttpRequestParser, TakesTheAbsoluteFormAndAnEmptyLineBefore) {
  EXPECT_EQ(Parse("\r\nGET http://h:1/a?b HTTP/1.1\r\nHost: h\r\n\r\n").request.path, "/a");
  EXPECT_EQ(Parse("GET http://h HTTP/1.1\r\nHost: h\r\n\r\n").request.path, "/");
  EXPECT_EQ(Parse("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n").request.path, "*");
}

TEST(HttpRequestParser, ExpectsOnlyContinue) {
  const std::string head = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n";
  EXPECT_TRUE(Parse(head + "Expect: 100-Continue\r\n\r\n").expects_continue);
  EXPECT_EQ(StatusOf(head + "Expect: a-miracle\r\n\r\n"), 417);
}

TEST(HttpRequestParser, RefusesWhatTwoReadersCouldUnderstandDifferently) {
  const std::string post = "POST / HTTP/1.1\r\nHost: h\r\n";
  const std::vector<std::pair<std::string, int>> cases = {
      {post + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
      {post + "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n", 400},
      {post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
      {post + "Transfer-Encoding: gzip, chunked\r\n\r\n", 501},
      {post + "Transfer-Encoding: identity\r\n\r\n", 501},
      {post + "Transfer-Encoding: xchunked\r\n\r\n", 501},
      {post + "Transfer-Encoding : chunked\r\n\r\n", 400},
      {post + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n", 400},
      {post + "Content-Length: 1\r\nContent-Length: 1\r\n\r\n", 400},
      {post + "Content-Length: 1, 1\r\n\r\n", 400},
      {post + "Content-Length: -1\r\n\r\n", 400},
      {post + "Content-Length: +1\r\n\r\n", 400},
      {post + "Content-Length: 0x1\r\n\r\n", 400},
      {post + "Content-Length: 99999999999999999999\r\n\r\n", 400},
      {post + "X: a\r\n b\r\n\r\n", 400},
      {post + "X: a\r\n\tb\r\n\r\n", 400},
      {post + " X: a\r\n\r\n", 400},
      {post + "X: a\n\r\n", 400},
      {post + "X: a\rb\r\n\r\n", 400},
      {post + std::string("X: a\0b\r\n\r\n", 10), 400},
      {post + "X a\r\n\r\n", 400},
      {post + ": a\r\n\r\n", 400},
      {post + "Host: i\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\n\r\n", 400},
      {"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
      {"GET /\r\n\r\n", 400},
      {"GET / HTTP/2.0\r\n\r\n", 505},
      {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
      {"GET  / HTTP/1.1\r\nHost: h\r\n\r\n", 400},
      {"GET x HTTP/1.1\r\nHost: h\r\n\r\n", 400},
      {"GET / HTTP/1.1\nHost: h\n\n", 400},
      {"\x16\x03\x01", 400},
      {post + "Transfer-Encoding: chunked\r\n\r\nxyz\r\n", 400},
      {post + "Transfer-Encoding: chunked\r\n\r\n1\r\nabcdefgh\r\n", 400},
      {post + "Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n", 400},
      {post + "Transfer-Encoding: chunked\r\n\r\n11111111111111111\r\n", 400},
  };
  for (const auto& [bytes, status] : cases) EXPECT_EQ(StatusOf(bytes), status) << bytes;
}

TEST(HttpRequestParser, BoundsTheHeaders) {
  const std::string start = "GET / HTTP/1.1\r\nHost: h\r\nX: ";
  EXPECT_EQ(StatusOf(start + std::string(kMaxHeaderBytes - start.size() - 4, 'a') + "\r\n\r\n"), 0);
  EXPECT_EQ(StatusOf(start + std::string(kMaxHeaderBytes - start.size() - 3, 'a') + "\r\n\r\n"),
            431);
  EXPECT_EQ(StatusOf(start + std::string(kMaxHeaderBytes, 'a')), 431);
  std::string many = "GET / HTTP/1.1\r\nHost: h\r\n";
  for (int i = 0; i < 100; ++i) many += "A:\r\n";
  EXPECT_EQ(StatusOf(many + "\r\n"), 431);
}

TEST(HttpRequestParser, BoundsTheBody) {
  const std::string post = "POST / HTTP/1.1\r\nHost: h\r\n";
  const Parsed parsed = Parse(post + "Content-Length: 101\r\n\r\n");
  EXPECT_EQ(parsed.problem.status, 413);
  EXPECT_THAT(parsed.problem.message, HasSubstr("101 bytes; at most 100"));
  const std::string chunked = post + "Transfer-Encoding: chunked\r\n\r\n";
  EXPECT_EQ(StatusOf(chunked + "65\r\n\r\n"), 413);
  EXPECT_EQ(StatusOf(chunked + "64\r\n" + std::string(100, 'a') + "\r\n1\r\n"), 413);
  EXPECT_EQ(StatusOf(chunked + "FFFFFFFFFFFFFFFF\r\n"), 413);
}

TEST(HttpRequestParser, BoundsTheLinesOfChunksHoweverTheyArrive) {
  const std::string begin = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
  const std::string fits(kMaxChunkLineBytes - 7, 'a');
  const std::string good =
      begin + "2;" + fits + "\r\nab\r\n0\r\n" + "X:" + fits.substr(7) + "\r\n\r\n";
  for (const size_t piece : {size_t{1}, size_t{100}, good.size()}) {
    EXPECT_EQ(Parse(good, piece).state, State::kComplete) << piece;
    for (const std::string& bad :
         {begin + "2;" + fits + "aaaaa\r\nab\r\n0\r\n\r\n", begin + "0\r\nX: " + fits + "\r\n\r\n",
          begin + "2\r\nab\r\n0\r\nX: " + fits + "\r\n\r\n",
          begin + "1;" + std::string(2000, 'a')}) {
      const Parsed parsed = Parse(bad, piece);
      EXPECT_EQ(parsed.problem.status, 400) << piece;
      EXPECT_THAT(parsed.problem.message, HasSubstr("more than 1024 bytes"));
    }
  }
}

// Random changes of valid requests: nothing crashes, splitting changes no result, and the unused
// bytes stay bounded.
TEST(HttpRequestParser, SplittingNeverChangesTheResult) {
  const uint32_t seed = 18;
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const std::vector<std::string> valid = {
      "POST /v1/x HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello",
      "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n0\r\n\r\n",
      "GET http://h/a HTTP/1.0\r\nConnection: keep-alive, x\r\nExpect: 100-continue\r\n\r\n",
  };
  constexpr std::string_view kBytes = "\r\n: 0159aAZ\t,;\0\xff/";
  int completed = 0;
  for (int i = 0; i < 4000; ++i) {
    std::string bytes = valid[random() % valid.size()];
    for (int changes = static_cast<int>(random() % 4); changes >= 0; --changes) {
      const size_t at = random() % bytes.size();
      const char c = kBytes[random() % kBytes.size()];
      if (random() % 2 == 0) {
        bytes[at] = c;
      } else {
        bytes.insert(at, 1, c);
      }
    }
    const Parsed whole = Parse(bytes);
    const Parsed split = Parse(bytes, 1 + random() % 5);
    completed += whole.state == State::kComplete ? 1 : 0;
    ASSERT_EQ(whole.state, split.state) << "seed " << seed << " turn " << i << "\n" << bytes;
    ASSERT_EQ(whole.request.body, split.request.body) << bytes;
    if (whole.state == State::kComplete) {
      ASSERT_EQ(whole.rest, split.rest) << bytes;
    }
  }
  EXPECT_GT(completed, 100);
}

}  // namespace
}  // namespace baton
