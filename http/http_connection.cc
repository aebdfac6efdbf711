#include "http/http_connection.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/entropy.h"
#include "http/cors.h"

namespace baton {
namespace {

using boost::system::error_code;
using std::chrono::milliseconds;

// A turn of one connection reads at most this many times, so that others get their turns.
constexpr int kReadsInATurn = 4;
// After the last answer, so that the client can read it before the connection is reset.
constexpr milliseconds kLingerTime{1000};
constexpr size_t kMaxLingeredBytes = size_t{1} << 20;
// Bytes of further requests that may wait during an answer.
constexpr size_t kMaxAheadBytes = size_t{16} << 10;

// Assigning an empty string would keep the memory.
void FreeMemory(std::string& text) { std::string().swap(text); }

// Returns what TlsSession::Read or Write returned, as ReadSome does. An error counts as an end:
// what matters is that nothing follows.
std::optional<size_t> OutcomeOf(ssize_t count) {
  if (count >= 0) return static_cast<size_t>(count);
  return errno == EAGAIN || errno == EINTR ? std::nullopt : std::optional<size_t>(0);
}

}  // namespace

HttpConnection::HttpConnection(Socket socket, std::shared_ptr<HttpServed> served,
                               std::span<char> scratch, std::function<void(HttpConnection*)> closed)
    : socket_(std::move(socket)),
      served_(std::move(served)),
      scratch_(scratch),
      closed_(std::move(closed)),
      phase_since_(Clock::now()) {
  ++served_->connections;
  if (served_->options.tls != nullptr) {
    tls_ = std::make_unique<TlsSession>(*served_->options.tls->Newest(), socket_.native_handle());
    phase_ = Phase::kHandshake;
  }
}

HttpConnection::~HttpConnection() {
  AccountBody(0);
  if (phase_ != Phase::kClosed) --served_->connections;
}

// The acceptor has seen that bytes are there. A request that has arrived is answered, also if the
// next connection needs this one's place.
void HttpConnection::Start() { OnReadable(); }

void HttpConnection::SetPhase(Phase phase) {
  phase_ = phase;
  phase_since_ = Clock::now();
}

// ---- bytes --------------------------------------------------------------------------------------

std::optional<size_t> HttpConnection::ReadSome() {
  if (tls_ != nullptr) return OutcomeOf(tls_->Read(std::as_writable_bytes(scratch_)));
  error_code error;
  const size_t count =
      socket_.read_some(boost::asio::buffer(scratch_.data(), scratch_.size()), error);
  if (error == boost::asio::error::would_block || error == boost::asio::error::interrupted) {
    return std::nullopt;
  }
  return error ? 0 : count;
}

std::optional<size_t> HttpConnection::WriteSome(std::string_view bytes) {
  if (tls_ != nullptr) return OutcomeOf(tls_->Write(std::as_bytes(std::span(bytes))));
  error_code error;
  const size_t count = socket_.write_some(boost::asio::buffer(bytes.data(), bytes.size()), error);
  if (error == boost::asio::error::would_block || error == boost::asio::error::interrupted) {
    return std::nullopt;
  }
  return error ? 0 : count;
}

bool HttpConnection::Reads() const {
  if (phase_ == Phase::kClosed) return false;
  return phase_ != Phase::kAnswering || input_.size() < kMaxAheadBytes;
}

void HttpConnection::AwaitReadable() {
  if (read_pending_ || !Reads()) return;
  read_pending_ = true;
  const auto read = [self = shared_from_this()](const error_code& error) {
    self->read_pending_ = false;
    if (error || self->phase_ == Phase::kClosed) return;
    self->OnReadable();
  };
  // The socket does not report bytes that TLS has already fetched from it.
  if (tls_ != nullptr && tls_->HasUnread()) {
    return boost::asio::post(socket_.get_executor(), [read] { read({}); });
  }
  const bool for_output = tls_ != nullptr && tls_->wants_output() && !tls_->established();
  socket_.async_wait(for_output ? Socket::wait_write : Socket::wait_read, read);
}

bool HttpConnection::ShakeHands() {
  const int outcome = tls_->Handshake();
  if (outcome == 1) {
    SetPhase(Phase::kIdle);
    return true;
  }
  if (outcome < 0 && errno == EAGAIN) {
    AwaitReadable();
  } else {
    Close();
  }
  return false;
}

void HttpConnection::OnReadable() {
  if (phase_ == Phase::kHandshake && !ShakeHands()) return;
  for (int i = 0; i < kReadsInATurn && Reads(); ++i) {
    const std::optional<size_t> count = ReadSome();
    if (!count.has_value()) break;
    if (*count == 0) return Close();
    if (phase_ == Phase::kLingering) {
      lingered_ += *count;
      if (lingered_ > kMaxLingeredBytes) return Close();
      continue;
    }
    input_.append(scratch_.data(), *count);
    Advance();
  }
  AwaitReadable();
}

// ---- requests -----------------------------------------------------------------------------------

void HttpConnection::Advance() {
  while (phase_ == Phase::kIdle || phase_ == Phase::kHead || phase_ == Phase::kBody) {
    if (phase_ == Phase::kIdle) {
      if (input_.empty()) return;
      parser_ = std::make_unique<HttpRequestParser>(served_->options.max_header_bytes);
      SetPhase(Phase::kHead);
    }
    const size_t used = parser_->Feed(input_);
    input_.erase(0, used);
    switch (parser_->state()) {
      case HttpRequestParser::State::kReadingHead:
        return;
      case HttpRequestParser::State::kReadingBody:
        AccountBody(parser_->body_bytes());
        if (served_->bodies_bytes > served_->options.max_bodies_bytes) {
          return Refuse({.status = 503,
                         .message = absl::StrCat("requests that are being received have more than ",
                                                 served_->options.max_bodies_bytes,
                                                 " bytes together, the limit. Try again later")});
        }
        return;
      case HttpRequestParser::State::kHead:
        OnHead();
        break;
      case HttpRequestParser::State::kComplete:
        Dispatch();
        break;
      case HttpRequestParser::State::kFailed:
        return Refuse(parser_->problem());
    }
  }
}

void HttpConnection::OnHead() {
  const HttpRequest& request = parser_->request();
  if (AnswersPreflight(request)) return;
  const HttpRoutes::Found found = served_->routes.Find(request);
  if (found.route == nullptr) {
    std::vector<HttpHeader> headers;
    if (!found.allow.empty()) headers.push_back({"Allow", found.allow});
    return Refuse(found.problem, std::move(headers));
  }
  route_ = found.route;
  if (served_->options.admit) {
    if (const std::optional<HttpProblem> refusal = served_->options.admit(request, *route_)) {
      const bool challenge = refusal->status == 401;
      return Refuse(*refusal, challenge ? std::vector<HttpHeader>{{"WWW-Authenticate", "Bearer"}}
                                        : std::vector<HttpHeader>());
    }
  }
  parser_->ExpectBody(route_->max_body_bytes);
  if (parser_->state() == HttpRequestParser::State::kFailed) return Refuse(parser_->problem());
  SetPhase(Phase::kBody);
  if (parser_->state() == HttpRequestParser::State::kReadingBody && parser_->expects_continue() &&
      input_.empty()) {
    output_ = "HTTP/1.1 100 Continue\r\n\r\n";
    written_ = 0;
    output_since_ = progress_ = Clock::now();
    output_ends_ = false;
    Flush();
  }
}

bool HttpConnection::AnswersPreflight(const HttpRequest& request) {
  const std::string& origins = served_->options.allow_origins;
  if (origins.empty() || !IsPreflight(request) || parser_->has_body()) return false;
  const std::string methods = served_->routes.Allowed(request.path);
  if (methods.empty()) return false;
  HttpResponse response = {
      .status = 204, .content_type = "", .headers = PreflightHeaders(methods, request), .body = ""};
  SendResponse(std::move(response), parser_->keep_alive());
  return true;
}

void HttpConnection::Dispatch() {
  exchange_ = MakeExchange(parser_->keep_alive());
  HttpRequest request = parser_->TakeRequest();
  request.id = exchange_->id();
  parser_.reset();
  AccountBody(0);
  SetPhase(Phase::kAnswering);
  if (input_.empty()) FreeMemory(input_);
  route_->handler(std::move(request), ForHandler());
}

std::shared_ptr<HttpExchange> HttpConnection::MakeExchange(bool keep_alive) {
  HttpFraming framing;
  framing.keep_alive = keep_alive;
  framing.draining = served_->draining;
  if (parser_ != nullptr) {
    const HttpRequest& request = parser_->request();
    framing.version_1_0 = parser_->version_1_0();
    framing.head_only = request.method == "HEAD";
    framing.extra_headers = CorsHeaders(served_->options.allow_origins, request);
    if (const std::string* id = request.Header("x-request-id");
        id != nullptr && HttpIdIsSane(*id)) {
      framing.request_id = *id;
    }
  }
  if (framing.request_id.empty()) {
    framing.request_id = absl::StrFormat("req-%016x", EntropyBits());
  }
  const auto wake = [self = weak_from_this(), executor = socket_.get_executor()] {
    boost::asio::post(executor, [self] {
      if (const auto connection = self.lock()) connection->Flush();
    });
  };
  return std::make_shared<HttpExchange>(std::move(framing), served_->options.max_queued_bytes,
                                        wake);
}

std::shared_ptr<HttpExchange> HttpConnection::ForHandler() const {
  return {exchange_.get(), [exchange = exchange_, served = served_](HttpExchange*) {
            if (exchange->begun()) return exchange->Abort();
            const HttpProblem problem = {.status = 500,
                                         .message = "the request ended without an answer"};
            const auto& make = served->options.problem_response;
            exchange->Reply(make ? make(problem)
                                 : HttpResponse{.status = 500,
                                                .content_type = "text/plain",
                                                .headers = {},
                                                .body = problem.message + "\n"});
          }};
}

void HttpConnection::AccountBody(size_t bytes) {
  served_->bodies_bytes += bytes - counted_body_bytes_;
  counted_body_bytes_ = bytes;
}

// ---- answers ------------------------------------------------------------------------------------

HttpResponse HttpConnection::ProblemResponse(const HttpProblem& problem) const {
  if (const auto& make = served_->options.problem_response) return make(problem);
  return {.status = problem.status,
          .content_type = "text/plain",
          .headers = {},
          .body = problem.message + "\n"};
}

void HttpConnection::Refuse(const HttpProblem& problem, std::vector<HttpHeader> headers) {
  HttpResponse response = ProblemResponse(problem);
  for (HttpHeader& header : headers) response.headers.push_back(std::move(header));
  // What follows a request that failed cannot be trusted to be the next one. A request that was
  // understood and has no body may be followed by another.
  const bool understood = parser_ != nullptr &&
                          parser_->state() == HttpRequestParser::State::kHead &&
                          !parser_->has_body() && parser_->keep_alive();
  exchange_ = MakeExchange(understood);
  if (parser_ != nullptr && served_->options.refused) {
    served_->options.refused(parser_->request(), exchange_->id(), problem);
  }
  SendOverExchange(std::move(response));
}

void HttpConnection::SendResponse(HttpResponse response, bool keep_alive) {
  exchange_ = MakeExchange(keep_alive);
  SendOverExchange(std::move(response));
}

void HttpConnection::SendOverExchange(HttpResponse response) {
  parser_.reset();
  AccountBody(0);
  SetPhase(Phase::kAnswering);
  exchange_->Reply(std::move(response));
}

void HttpConnection::Flush() {
  while (phase_ != Phase::kClosed && !write_pending_) {
    if (written_ == output_.size()) {
      output_.clear();
      written_ = 0;
      if (output_ends_) return AnswerDone();
      if (exchange_ == nullptr) break;
      HttpExchange::Output taken = exchange_->Take();
      if (taken.aborted) return Close();
      output_ = std::move(taken.bytes);
      output_ends_ = taken.ended;
      keep_alive_ = taken.keep_alive;
      if (output_.empty()) {
        if (output_ends_) continue;
        FreeMemory(output_);
        break;
      }
      output_since_ = taken.since;
      progress_ = Clock::now();
    }
    const std::optional<size_t> count = WriteSome(std::string_view(output_).substr(written_));
    if (!count.has_value()) return AwaitWritable();
    if (*count == 0) return Close();
    written_ += *count;
    progress_ = Clock::now();
  }
}

void HttpConnection::AwaitWritable() {
  write_pending_ = true;
  socket_.async_wait(Socket::wait_write, [self = shared_from_this()](const error_code& error) {
    self->write_pending_ = false;
    if (error || self->phase_ == Phase::kClosed) return;
    self->Flush();
  });
}

void HttpConnection::AnswerDone() {
  output_ends_ = false;
  exchange_->Detach();
  exchange_.reset();
  if (!keep_alive_) {
    error_code ignored;
    if (tls_ != nullptr) tls_->CloseSending();
    socket_.shutdown(Socket::shutdown_send, ignored);
    SetPhase(Phase::kLingering);
    input_.clear();
    return AwaitReadable();
  }
  SetPhase(Phase::kIdle);
  Advance();
  AwaitReadable();
}

// ---- ends ---------------------------------------------------------------------------------------

bool HttpConnection::CannotWaitLonger(Clock::time_point now) const {
  const HttpServerOptions& options = served_->options;
  switch (phase_) {
    case Phase::kIdle:
      return now - phase_since_ > milliseconds(options.idle_ms);
    case Phase::kHandshake:
    case Phase::kHead:
      return now - phase_since_ > milliseconds(options.header_ms);
    case Phase::kBody:
      return now - phase_since_ > milliseconds(options.body_ms);
    case Phase::kAnswering:
      return write_pending_ &&
             (now - progress_ > milliseconds(options.stall_ms) ||
              now - output_since_ > kHttpBehindFactor * milliseconds(options.stall_ms));
    case Phase::kLingering:
      return now - phase_since_ > kLingerTime;
    case Phase::kClosed:
      return false;
  }
  return false;
}

void HttpConnection::Tick(Clock::time_point now) {
  if (!CannotWaitLonger(now)) return;
  const HttpServerOptions& options = served_->options;
  if (phase_ == Phase::kHead) {
    return Refuse({.status = 408,
                   .message = absl::StrCat("the headers were not complete after ",
                                           options.header_ms, " ms, the limit")});
  }
  if (phase_ == Phase::kBody) {
    return Refuse({.status = 408,
                   .message = absl::StrCat("the body was not complete after ", options.body_ms,
                                           " ms, the limit")});
  }
  if (phase_ == Phase::kAnswering) {
    LOG_EVERY_T(WARNING, 10) << "an HTTP answer ended: its client reads nothing for "
                             << options.stall_ms << " ms, or has fallen behind by "
                             << kHttpBehindFactor << " times that time";
  }
  Close();
}

void HttpConnection::CloseIfIdle() {
  if (phase_ == Phase::kIdle) Close();
}

std::optional<HttpConnection::Clock::time_point> HttpConnection::waiting_since() const {
  const bool busy = phase_ == Phase::kBody || phase_ == Phase::kAnswering;
  if (busy || phase_ == Phase::kClosed) return std::nullopt;
  return phase_since_;
}

void HttpConnection::Close() {
  if (phase_ == Phase::kClosed) return;
  SetPhase(Phase::kClosed);
  --served_->connections;  // at once: the object lives on until its last handler has run
  const auto self = shared_from_this();  // `closed_` drops the server's reference
  error_code ignored;
  socket_.close(ignored);
  if (exchange_ != nullptr) {
    const auto gone = exchange_->Detach();
    exchange_.reset();
    if (gone) gone();
  }
  closed_(this);
}

}  // namespace baton
