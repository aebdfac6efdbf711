#include "http/http_client.h"

#include <sys/socket.h>

#include <array>
#include <boost/asio/connect.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <chrono>
#include <optional>
#include <set>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "http/http_response_parser.h"
#include "security/tls_session.h"

namespace baton {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using Tcp = asio::ip::tcp;

constexpr size_t kReadBytes = size_t{16} << 10;
// A turn of one call reads at most this many times, so that others get their turns.
constexpr int kReadsOfACall = 4;

// A connection. Asio waits for the socket. Send and Receive move its bytes.
struct ClientConnection {
  explicit ClientConnection(asio::io_context& io) : socket(io) {}

  // They return what send and recv return.
  ssize_t Send(std::string_view bytes) {
    if (tls != nullptr) return tls->Write(std::as_bytes(std::span(bytes)));
    return send(socket.native_handle(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  ssize_t Receive(std::span<char> into) {
    if (tls != nullptr) return tls->Read(std::as_writable_bytes(into));
    return recv(socket.native_handle(), into.data(), into.size(), 0);
  }

  Tcp::socket socket;
  std::unique_ptr<TlsSession> tls;  // null: no encryption
};

bool MustWait() { return errno == EAGAIN || errno == EINTR; }

std::string RequestText(const HostPort& server, const HttpClientOptions& options,
                        const std::string& path, const std::string& body) {
  std::string text = absl::StrCat(body.empty() ? "GET " : "POST ", path,
                                  " HTTP/1.1\r\nHost: ", JoinHostPort(server.host, server.port),
                                  "\r\nUser-Agent: baton\r\n"
                                  "Accept: text/event-stream, application/json\r\n");
  if (!options.api_key.empty()) {
    absl::StrAppend(&text, "Authorization: Bearer ", options.api_key, "\r\n");
  }
  if (!body.empty()) {
    absl::StrAppend(&text, "Content-Type: application/json\r\nContent-Length: ", body.size(),
                    "\r\n");
  }
  absl::StrAppend(&text, "\r\n", body);
  return text;
}

}  // namespace

class HttpClient::Impl {
 public:
  Impl(const HostPort& server, HttpClientOptions options)
      : server_(server),
        options_(std::move(options)),
        resolver_(io_),
        work_(asio::make_work_guard(io_)),
        thread_([this] { io_.run(); }) {}
  ~Impl() {
    io_.stop();
    thread_.join();
  }

  void Start(const std::string& path, const std::string& body, int64_t timeout_ms,
             HttpCallEvents events);
  void CancelAll();

 private:
  class Call;

  // The rest runs on the I/O thread.

  // Calls `done` with the server's addresses. Asks the resolver only once.
  void Resolve(std::function<void(const std::string& error)> done);

  const HostPort server_;
  const HttpClientOptions options_;
  asio::io_context io_;
  Tcp::resolver resolver_;
  Tcp::resolver::results_type addresses_;
  std::vector<std::unique_ptr<ClientConnection>> idle_;
  std::set<std::shared_ptr<Call>> calls_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  std::thread thread_;
};

// One call. Belongs to the I/O thread. At most one operation of the socket or resolver is pending.
class HttpClient::Impl::Call : public std::enable_shared_from_this<Call> {
 public:
  Call(Impl& client, std::string request, int64_t timeout_ms, HttpCallEvents events)
      : client_(client),
        request_(std::move(request)),
        events_(std::move(events)),
        deadline_(client.io_) {
    if (timeout_ms > 0) {
      deadline_.expires_after(std::chrono::milliseconds(timeout_ms));
    } else {
      deadline_.expires_at(asio::steady_timer::time_point::max());
    }
  }

  void Begin() {
    deadline_.async_wait([self = shared_from_this()](const error_code& error) {
      if (!error) self->End(kHttpTimeout);
    });
    while (!client_.idle_.empty()) {
      connection_ = std::move(client_.idle_.back());
      client_.idle_.pop_back();
      char unexpected;
      if (connection_->Receive({&unexpected, 1}) < 0 && MustWait()) {
        is_reused_ = true;
        return Write();
      }
      // The server has closed this connection, or sent bytes without a request.
    }
    Connect();
  }

  void Cancel() { End(kHttpCancelled); }

 private:
  using Step = void (Call::*)();

  void Connect() {
    is_reused_ = false;
    written_ = 0;
    client_.Resolve([self = shared_from_this()](const std::string& error) {
      if (self->has_ended_) return;
      if (!error.empty()) return self->End(error);
      self->connection_ = std::make_unique<ClientConnection>(self->client_.io_);
      asio::async_connect(self->connection_->socket, self->client_.addresses_,
                          [self](const error_code& failure, const Tcp::endpoint&) {
                            if (self->has_ended_) return;
                            if (failure) return self->Fail("connect", failure.message());
                            self->OnConnected();
                          });
    });
  }

  void OnConnected() {
    Tcp::socket& socket = connection_->socket;
    error_code ignored;
    // Small requests must not wait for an acknowledgement.
    socket.set_option(Tcp::no_delay(true), ignored);
    socket.native_non_blocking(true, ignored);
    if (client_.options_.tls == nullptr) return Write();
    connection_->tls = std::make_unique<TlsSession>(*client_.options_.tls, socket.native_handle());
    connection_->tls->ExpectHost(client_.server_.host);
    ShakeHands();
  }

  void ShakeHands() {
    const int outcome = connection_->tls->Handshake();
    if (outcome == 1) return Write();
    if (outcome < 0 && MustWait()) return Await(Tcp::socket::wait_read, &Call::ShakeHands);
    Fail("TLS", outcome == 0 ? "the server closed the connection" : ErrorText());
  }

  void Write() {
    while (written_ < request_.size()) {
      const ssize_t count = connection_->Send(std::string_view(request_).substr(written_));
      if (count < 0 && MustWait()) return Await(Tcp::socket::wait_write, &Call::Write);
      if (count < 0) return FailBeforeAnswer("send");
      written_ += static_cast<size_t>(count);
    }
    parser_.emplace([this](std::string_view body) {
      if (events_.on_body) events_.on_body(parser_->status(), body);
    });
    unparsed_.clear();
    Read();
  }

  void Read() {
    for (int i = 0; i < kReadsOfACall; ++i) {
      const ssize_t count = connection_->Receive(bytes_);
      if (count < 0 && MustWait()) return Await(Tcp::socket::wait_read, &Call::Read);
      if (count < 0) return FailBeforeAnswer("read");
      if (count == 0 && !has_answer_) {
        errno = ECONNRESET;
        return FailBeforeAnswer("read");
      }
      if (count > 0) {
        unparsed_.append(bytes_.data(), static_cast<size_t>(count));
        has_answer_ = true;
        unparsed_.erase(0, parser_->Feed(unparsed_));
      } else {
        parser_->FeedEnd();
      }
      if (!parser_->problem().empty()) return Fail("read", parser_->problem());
      if (parser_->complete()) return Complete(/*is_open=*/count > 0 && unparsed_.empty());
    }
    asio::post(client_.io_, [self = shared_from_this()] {
      if (!self->has_ended_) self->Read();
    });
  }

  // Goes on with `next` when the socket is ready. TLS may need the other direction.
  void Await(Tcp::socket::wait_type type, Step next) {
    if (const auto& tls = connection_->tls) {
      type = tls->wants_output() ? Tcp::socket::wait_write : Tcp::socket::wait_read;
    }
    connection_->socket.async_wait(type, [self = shared_from_this(), next](const error_code&) {
      if (!self->has_ended_) (self.get()->*next)();
    });
  }

  // Describes errno after Send, Receive or a handshake.
  std::string ErrorText() const {
    const error_code error(errno, boost::system::system_category());
    if (connection_->tls != nullptr && !connection_->tls->failure().empty()) {
      return connection_->tls->failure();
    }
    return error.message();
  }

  void Complete(bool is_open) {
    if (is_open && parser_->keep_alive()) client_.idle_.push_back(std::move(connection_));
    End("");
  }

  // A server may close an idle connection just before a request arrives there. It has probably not
  // read the request, so the request goes to a new connection, once. EPROTO: TLS did not end.
  void FailBeforeAnswer(const char* what) {
    const bool is_closed = errno == ECONNRESET || errno == EPIPE || errno == EPROTO;
    if (is_reused_ && !has_answer_ && is_closed) return Connect();
    Fail(what, ErrorText());
  }

  void Fail(const char* what, const std::string& reason) { End(absl::StrCat(what, ": ", reason)); }

  // Closes the connection. A pending operation then ends without effect.
  void End(const std::string& error) {
    if (std::exchange(has_ended_, true)) return;
    const std::shared_ptr<Call> self = shared_from_this();
    client_.calls_.erase(self);
    deadline_.cancel();
    if (connection_ != nullptr) {  // it stays, because a pending operation uses the socket
      error_code ignored;
      connection_->socket.close(ignored);
    }
    events_.on_end(parser_.has_value() ? parser_->status() : 0, error);
  }

  Impl& client_;
  const std::string request_;
  const HttpCallEvents events_;
  asio::steady_timer deadline_;  // covers all operations
  std::unique_ptr<ClientConnection> connection_;
  std::optional<HttpResponseParser> parser_;
  std::string unparsed_;  // received bytes that the parser has not used
  std::array<char, kReadBytes> bytes_;
  size_t written_ = 0;  // of request_
  bool is_reused_ = false;
  bool has_answer_ = false;  // at least one byte of it has come
  bool has_ended_ = false;
};

void HttpClient::Impl::Start(const std::string& path, const std::string& body, int64_t timeout_ms,
                             HttpCallEvents events) {
  auto call = std::make_shared<Call>(*this, RequestText(server_, options_, path, body), timeout_ms,
                                     std::move(events));
  asio::post(io_, [this, call = std::move(call)] {
    calls_.insert(call);
    call->Begin();
  });
}

void HttpClient::Impl::CancelAll() {
  asio::post(io_, [this] {
    const std::vector<std::shared_ptr<Call>> calls(calls_.begin(), calls_.end());
    for (const std::shared_ptr<Call>& call : calls) call->Cancel();
  });
}

void HttpClient::Impl::Resolve(std::function<void(const std::string& error)> done) {
  if (!addresses_.empty()) return done("");
  resolver_.async_resolve(
      server_.host, absl::StrCat(server_.port),
      [this, done = std::move(done)](const error_code& failure,
                                     const Tcp::resolver::results_type& addresses) {
        if (!failure) addresses_ = addresses;
        done(failure ? absl::StrCat("resolve ", server_.host, ": ", failure.message()) : "");
      });
}

HttpClient::HttpClient(const HostPort& server, HttpClientOptions options)
    : impl_(std::make_unique<Impl>(server, std::move(options))) {}
HttpClient::~HttpClient() = default;

void HttpClient::Start(const std::string& path, const std::string& body, int64_t timeout_ms,
                       HttpCallEvents events) {
  impl_->Start(path, body, timeout_ms, std::move(events));
}

void HttpClient::CancelAll() { impl_->CancelAll(); }

}  // namespace baton
