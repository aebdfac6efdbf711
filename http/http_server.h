// HTTP/1.1 server: event-driven, with few I/O threads and limits on everything that a client can
// grow (http_server_options.h). It serves HTTP/1.0 and 1.1, keep-alive, pipelined requests in their
// order, HEAD, chunked bodies and `Expect: 100-continue`.
//
// A request that could be read in two ways is refused: both Content-Length and Transfer-Encoding,
// other transfer codings than chunked, folded headers, bare line feeds. After such a refusal the
// connection is closed.
//
// A client that leaves is noticed at once, also while it waits for its answer. A client that closes
// only its sending side counts as gone.
//
// Thread safety: Start, EndConnections, Drain, Shutdown and the destructor on one thread. Handlers
// run on the I/O threads; each may run on several at once if there are several.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "http/http_routes.h"
#include "http/http_server_options.h"

namespace baton {

class HttpServer {
 public:
  // Unavailable: the address cannot be bound. InvalidArgument: not a valid address.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const HttpServerOptions& options,
                                                           HttpRoutes routes);
  // Ends as Shutdown(0).
  ~HttpServer();

  // From now on each answer ends its connection. Idle connections stay open until their next
  // answer: a client may be sending a request right now. New connections are still accepted.
  void EndConnections();
  // As EndConnections, and idle connections are closed. New connections are still accepted, so that
  // their requests get an answer that says why they are refused.
  void Drain();

  // Accepts no connection any more, waits up to `grace_ms` for the answers that are being written,
  // and closes the rest. No handler and no gone function runs after the return.
  void Shutdown(int64_t grace_ms);

  // HOST:PORT with the port that was bound.
  const std::string& address() const;
  int32_t port() const;
  // Connections that are open now.
  int32_t connections() const;

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);

  const std::unique_ptr<Impl> impl_;
};

}  // namespace baton
