// One connection of an HTTP server: reads requests, runs their handlers one after the other, and
// writes the answers in that order. Boost.Asio waits for the socket; this class reads and writes.
//
// A read is pending at all times, so that a client that leaves is noticed. Bytes of further
// requests stay in a bounded buffer until the answer is complete. While that buffer is full,
// nothing is read.
//
// Only ReadSome, WriteSome and ShakeHands touch the socket's bytes. With TLS, they go through a
// TlsSession. A handshake has the time limit of a request's head.
//
// Thread safety: belongs to the I/O thread of its io_context, which must outlive it. Exchanges wake
// it from other threads.
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "http/http_exchange.h"
#include "http/http_request_parser.h"
#include "http/http_routes.h"
#include "http/http_server_options.h"
#include "security/tls_session.h"

namespace baton {

// What all connections of a server share.
struct HttpServed {
  HttpServerOptions options;
  HttpRoutes routes;
  std::shared_ptr<std::atomic<bool>> draining = std::make_shared<std::atomic<bool>>(false);
  std::atomic<size_t> bodies_bytes = 0;  // of all requests that are being received
  std::atomic<int32_t> connections = 0;
};

class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  using Socket = boost::asio::ip::tcp::socket;
  using Clock = std::chrono::steady_clock;

  // `scratch`: buffer of the I/O thread for reads. `closed` is called once, when the connection is
  // done.
  HttpConnection(Socket socket, std::shared_ptr<HttpServed> served, std::span<char> scratch,
                 std::function<void(HttpConnection*)> closed);
  ~HttpConnection();

  void Start();
  // Closes the connection if one of its time limits has passed.
  void Tick(Clock::time_point now);
  // Closes the connection if it has no request.
  void CloseIfIdle();
  // Since when the connection waits for the head of a request, or for its client to close it.
  // nullopt: a body is being read, or a request is being answered.
  std::optional<Clock::time_point> waiting_since() const;
  void Close();

 private:
  enum class Phase {
    kHandshake,  // of TLS
    kIdle,       // waits for the first byte of a request
    kHead,       // reads a request's head
    kBody,       // reads a request's body
    kAnswering,  // waits for the handler's answer, or writes it
    kLingering,  // the last answer is written; reads until the client has seen it and closes
    kClosed,
  };

  void SetPhase(Phase phase);
  bool Reads() const;
  void AwaitReadable();
  void OnReadable();
  // Continues the handshake. Returns true if it is complete.
  bool ShakeHands();
  void AwaitWritable();
  void Flush();
  // Parses what was received, as far as the phase wants it.
  void Advance();
  void OnHead();
  void Dispatch();
  // Answers without a handler and closes the connection afterwards.
  void Refuse(const HttpProblem& problem, std::vector<HttpHeader> headers = {});
  void SendResponse(HttpResponse response, bool keep_alive);
  void SendOverExchange(HttpResponse response);
  void AnswerDone();
  std::shared_ptr<HttpExchange> MakeExchange(bool keep_alive);
  // The handler's own reference: dropping it answers in its place.
  std::shared_ptr<HttpExchange> ForHandler() const;
  void AccountBody(size_t bytes);
  HttpResponse ProblemResponse(const HttpProblem& problem) const;
  bool AnswersPreflight(const HttpRequest& request);
  bool CannotWaitLonger(Clock::time_point now) const;

  std::optional<size_t> ReadSome();  // absent: nothing to read now; 0: the client has closed
  std::optional<size_t> WriteSome(std::string_view bytes);  // absent: the socket takes none now

  Socket socket_;
  std::unique_ptr<TlsSession> tls_;  // null: no encryption
  const std::shared_ptr<HttpServed> served_;
  const std::span<char> scratch_;
  const std::function<void(HttpConnection*)> closed_;

  Phase phase_ = Phase::kIdle;
  Clock::time_point phase_since_;
  bool read_pending_ = false;
  std::string input_;  // received, not parsed
  std::unique_ptr<HttpRequestParser> parser_;
  const HttpRoute* route_ = nullptr;
  size_t counted_body_bytes_ = 0;  // of bodies_bytes

  std::shared_ptr<HttpExchange> exchange_;  // of kAnswering
  std::string output_;                      // being written
  size_t written_ = 0;                      // of output_
  Clock::time_point output_since_;          // when its first byte was queued
  Clock::time_point progress_;              // when bytes were last written, or writing began
  bool write_pending_ = false;
  bool output_ends_ = false;  // the exchange has ended with output_
  bool keep_alive_ = false;   // after the present answer
  size_t lingered_ = 0;       // bytes that were read in vain
};

}  // namespace baton
