// Feeds hostile bytes to the HTTP request parser, whole and in pieces. Splitting must not change
// the result, and what a connection has to keep must stay bounded.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/check.h"
#include "http/http_request_parser.h"
#include "tests/fuzz/seed_corpus.h"

namespace {

using baton::HttpRequestParser;
using State = HttpRequestParser::State;

constexpr size_t kMaxHeaderBytes = 512;
constexpr size_t kMaxBodyBytes = 256;
// Of a chunked body, the last bytes wait for more, and so may the line of a chunk's size.
constexpr size_t kMaxUnused = kMaxHeaderBytes + 1024 + 64;

struct Outcome {
  State state = State::kReadingHead;
  int status = 0;
  std::string body;
  size_t unused = 0;
};

Outcome Parse(std::string_view bytes, size_t piece) {
  HttpRequestParser parser(kMaxHeaderBytes);
  std::string unused;
  while (!bytes.empty() && parser.state() != State::kComplete && parser.state() != State::kFailed) {
    const size_t count = bytes.size() < piece ? bytes.size() : piece;
    unused.append(bytes.substr(0, count));
    bytes.remove_prefix(count);
    unused.erase(0, parser.Feed(unused));
    if (parser.state() == State::kHead) {
      parser.ExpectBody(kMaxBodyBytes);
      unused.erase(0, parser.Feed(unused));
    }
    if (parser.state() == State::kReadingBody || parser.state() == State::kReadingHead) {
      CHECK(unused.size() <= kMaxUnused);
    }
  }
  CHECK(parser.body_bytes() <= kMaxBodyBytes);
  return {.state = parser.state(),
          .status = parser.problem().status,
          .body = parser.request().body,
          .unused = unused.size()};
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  const std::string post = "\x03POST /v1/x?a=b HTTP/1.1\r\nHost: h\r\n";
  baton::WriteSeeds(
      *argc, *argv,
      {{"get", "\x01GET / HTTP/1.1\r\nHost: h\r\n\r\n"},
       {"old", "\x02GET http://h/a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"},
       {"length", post + "Content-Length: 5\r\nExpect: 100-continue\r\n\r\nhelloGET"},
       {"chunks", post + "Transfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n0\r\nT: t\r\n\r\n"},
       {"both", post + "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n"}});
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const size_t piece = 1 + data[0] % 32;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Outcome whole = Parse(bytes, bytes.size() + 1);
  const Outcome split = Parse(bytes, piece);
  if (whole.state == State::kComplete) {
    CHECK(split.state == State::kComplete);
    CHECK(split.body == whole.body);
  }
  if (split.state == State::kComplete) CHECK(whole.state == State::kComplete);
  return 0;
}
