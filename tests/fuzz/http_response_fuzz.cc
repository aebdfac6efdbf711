// Feeds hostile bytes to the HTTP client's parser of answers, whole and in pieces. Splitting must
// not change the result, and what a client has to keep must stay bounded.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/check.h"
#include "http/chunk_line.h"
#include "http/http_response_parser.h"
#include "tests/fuzz/seed_corpus.h"

namespace {

using baton::HttpResponseParser;

struct Outcome {
  int status = 0;
  bool complete = false;
  bool failed = false;
  std::string body;
};

Outcome Parse(std::string_view bytes, size_t piece) {
  Outcome outcome;
  HttpResponseParser parser([&](std::string_view body) { outcome.body += body; });
  std::string unused;
  while (!bytes.empty() && !parser.complete() && parser.problem().empty()) {
    const size_t count = bytes.size() < piece ? bytes.size() : piece;
    unused.append(bytes.substr(0, count));
    bytes.remove_prefix(count);
    unused.erase(0, parser.Feed(unused));
    if (!parser.complete() && parser.problem().empty()) {
      CHECK(unused.size() <=
            (parser.status() == 0 ? HttpResponseParser::kMaxHeadBytes : baton::kMaxChunkLineBytes));
    }
  }
  parser.FeedEnd();
  outcome.status = parser.status();
  outcome.complete = parser.complete();
  outcome.failed = !parser.problem().empty();
  CHECK(outcome.complete != outcome.failed);
  if (outcome.complete) (void)parser.keep_alive();
  return outcome;
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  const std::string head = "\x03HTTP/1.1 200 OK\r\n";
  baton::WriteSeeds(
      *argc, *argv,
      {{"length", head + "Content-Length: 5\r\n\r\nhello"},
       {"chunked", head + "Transfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nT: t\r\n\r\n"},
       {"open", "\x02HTTP/1.0 200 OK\r\n\r\nuntil the end"},
       {"interim", "\x05HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n"},
       {"error", "\x07HTTP/1.1 503 Busy\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"}});
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Outcome whole = Parse(bytes, std::string_view::npos);
  const Outcome split = Parse(bytes, data[0] % 16 + 1);
  CHECK(whole.status == split.status && whole.failed == split.failed);
  CHECK(whole.body == split.body);
  return 0;
}
