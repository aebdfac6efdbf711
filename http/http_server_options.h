// Settings and limits of an HTTP server.
//
// Thread safety: plain data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "http/http_message.h"

namespace baton {

struct HttpRoute;
class TlsContextSource;

struct HttpServerOptions {
  std::string listen = "127.0.0.1:0";  // HOST:PORT; port 0 picks one
  int32_t io_threads = 1;
  // At the limit, a new connection takes the place of the one that has waited longest for its
  // client. If all of its I/O thread read a body or answer a request, it gets 503. The descriptor
  // limit of the process may allow fewer.
  int32_t max_connections = 16'384;
  size_t max_header_bytes = size_t{16} << 10;  // of the request line and all headers: 431
  // From the first byte of a request to the end of its headers: 408.
  int64_t header_ms = 10'000;
  int64_t body_ms = 60'000;  // from the end of the headers to the end of the body: 408
  // Bodies of all requests that are being received, together: 503. A route bounds a single body.
  size_t max_bodies_bytes = size_t{256} << 20;
  int64_t idle_ms = 75'000;  // a connection without a request for this long is closed
  // Unread bytes of one answer; more break it off.
  size_t max_queued_bytes = size_t{4} << 20;
  // A client that reads nothing for this long loses its connection. So does one that falls behind
  // by kHttpBehindFactor times as long.
  int64_t stall_ms = 30'000;
  // Dead machines: an idle connection is probed, and unconfirmed data waits no longer than this.
  int64_t peer_timeout_ms = 30'000;
  // Origins of browsers that may use the server, separated by commas; "*": all; empty: none.
  std::string allow_origins = {};
  // Makes the answer for errors that the server finds itself. Null: one line of plain text.
  std::function<HttpResponse(const HttpProblem&)> problem_response = {};
  // Refuses a request, or returns nothing. Called on an I/O thread before the body is read. Null:
  // none is refused.
  std::function<std::optional<HttpProblem>(const HttpRequest&, const HttpRoute&)> admit = {};
  // Gets each request that the server or `admit` refuses, with the id of its answer. Fields that
  // were not read are empty. Called on an I/O thread. May be null.
  std::function<void(const HttpRequest&, const std::string& id, const HttpProblem&)> refused = {};
  std::shared_ptr<TlsContextSource> tls = {};  // null: no encryption
};

inline constexpr int kHttpBehindFactor = 10;

}  // namespace baton
