// The head of an HTTP/1.1 answer: status line and headers, with the framing of the body.
//
// Thread safety: pure functions, except HttpDate, which any thread may call.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "http/http_message.h"

namespace baton {

// What an answer needs to know about its request and its connection.
struct HttpFraming {
  std::string request_id;
  bool version_1_0 = false;
  bool head_only = false;                      // the request's method was HEAD
  bool keep_alive = false;                     // the connection may carry another request
  std::vector<HttpHeader> extra_headers = {};  // CORS
  // True once the server drains; then no connection is kept. May be null.
  std::shared_ptr<const std::atomic<bool>> draining = {};
};

enum class HttpBodyFraming {
  kNone,     // no body follows
  kLength,   // Content-Length
  kChunked,  // chunks
  kClose,    // until the connection ends (HTTP/1.0)
};

struct HttpHead {
  std::string text;  // with the empty line
  HttpBodyFraming body = HttpBodyFraming::kNone;
  bool keep_alive = false;
};

// `length`: of a whole body; absent: the body is streamed. Control characters in header values
// become spaces.
HttpHead MakeHttpHead(const HttpResponse& response, std::optional<size_t> length,
                      const HttpFraming& framing);

// A chunk of a chunked body. REQUIRES: `piece` is not empty.
std::string HttpChunk(std::string_view piece);
inline constexpr std::string_view kHttpLastChunk = "0\r\n\r\n";

// The time now, as in the Date header.
std::string HttpDate();

}  // namespace baton
