#include "cli/http_client.h"

#include <arpa/inet.h>
#include <openssl/ssl.h>

#include <array>
#include <boost/asio/connect.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>
#include <chrono>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using Tcp = asio::ip::tcp;

constexpr uint32_t kMaxHeaderBytes = 64 << 10;
constexpr size_t kReadBytes = 16 << 10;

using TlsStream = beast::ssl_stream<beast::tcp_stream&>;

// A connection, and the bytes that it has read beyond the last answer.
struct HttpConnection {
  explicit HttpConnection(asio::io_context& io) : stream(io) {}

  // Calls `use` with the stream that carries requests.
  template <typename Use>
  void WithStream(const Use& use) {
    if (tls != nullptr) {
      use(*tls);
    } else {
      use(stream);
    }
  }

  beast::tcp_stream stream;
  std::unique_ptr<TlsStream> tls;  // null: no encryption
  beast::flat_buffer buffer;
};

// asio's context owns a reference.
asio::ssl::context ShareContext(const TlsContext& context) {
  SSL_CTX_up_ref(context.native());
  return asio::ssl::context(context.native());
}

// Makes the handshake fail if the certificate is not that of `host`.
void ExpectHost(SSL* session, const std::string& host) {
  in6_addr address;
  const bool is_address = inet_pton(AF_INET, host.c_str(), &address) == 1 ||
                          inet_pton(AF_INET6, host.c_str(), &address) == 1;
  if (is_address) {
    X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(session), host.c_str());
    return;
  }
  SSL_set1_host(session, host.c_str());
  SSL_set_tlsext_host_name(session, host.c_str());
}

}  // namespace

class HttpClient::Impl {
 public:
  Impl(const HostPort& server, HttpClientOptions options)
      : server_(server),
        options_(std::move(options)),
        resolver_(io_),
        work_(asio::make_work_guard(io_)) {
    if (options_.tls != nullptr) tls_.emplace(ShareContext(*options_.tls));
    thread_ = std::thread([this] { io_.run(); });
  }
  ~Impl() {
    io_.stop();
    thread_.join();
  }

  void Start(const std::string& path, std::string body, int64_t timeout_ms, HttpCallEvents events);
  void CancelAll();

 private:
  class Call;

  // The rest runs on the I/O thread.

  // Calls `done` with the server's addresses. Asks the resolver only once.
  void Resolve(std::function<void(const std::string& error)> done);

  const HostPort server_;
  const HttpClientOptions options_;
  std::optional<asio::ssl::context> tls_;
  asio::io_context io_;
  Tcp::resolver resolver_;
  Tcp::resolver::results_type addresses_;
  std::vector<std::unique_ptr<HttpConnection>> idle_;
  std::set<std::shared_ptr<Call>> calls_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  std::thread thread_;
};

// One call. Belongs to the I/O thread.
class HttpClient::Impl::Call : public std::enable_shared_from_this<Call> {
 public:
  Call(Impl& client, const std::string& path, std::string body, int64_t timeout_ms,
       HttpCallEvents events)
      : client_(client), events_(std::move(events)) {
    if (timeout_ms > 0) {
      deadline_ = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
    }
    request_.version(11);
    request_.method(body.empty() ? http::verb::get : http::verb::post);
    request_.target(path);
    request_.set(http::field::host, JoinHostPort(client.server_.host, client.server_.port));
    request_.set(http::field::user_agent, "baton");
    request_.set(http::field::accept, "text/event-stream, application/json");
    if (!client.options_.api_key.empty()) {
      request_.set(http::field::authorization, "Bearer " + client.options_.api_key);
    }
    if (!body.empty()) request_.set(http::field::content_type, "application/json");
    request_.body() = std::move(body);
    request_.prepare_payload();
  }

  void Begin() {
    if (!client_.idle_.empty()) {
      connection_ = std::move(client_.idle_.back());
      client_.idle_.pop_back();
      is_reused_ = true;
      return Write();
    }
    Connect();
  }

  void Cancel() {
    is_cancelled_ = true;
    if (connection_ != nullptr) connection_->stream.cancel();
  }

 private:
  void Connect() {
    is_reused_ = false;
    client_.Resolve([self = shared_from_this()](const std::string& error) {
      if (!error.empty()) return self->End(error);
      self->connection_ = std::make_unique<HttpConnection>(self->client_.io_);
      self->SetDeadline();
      self->connection_->stream.async_connect(
          self->client_.addresses_, [self](const beast::error_code& failure, const Tcp::endpoint&) {
            if (failure) return self->Fail("connect", failure);
            beast::error_code ignored;
            // Small requests must not wait for an acknowledgement.
            self->connection_->stream.socket().set_option(Tcp::no_delay(true), ignored);
            self->ShakeHands();
          });
    });
  }

  void ShakeHands() {
    if (!client_.tls_.has_value()) return Write();
    connection_->tls = std::make_unique<TlsStream>(connection_->stream, *client_.tls_);
    ExpectHost(connection_->tls->native_handle(), client_.server_.host);
    connection_->tls->async_handshake(
        asio::ssl::stream_base::client,
        [self = shared_from_this()](const beast::error_code& failure) {
          if (failure) return self->Fail("TLS", failure);
          self->Write();
        });
  }

  // The deadline covers all operations of the call.
  void SetDeadline() {
    if (deadline_) {
      connection_->stream.expires_at(*deadline_);
    } else {
      connection_->stream.expires_never();
    }
  }

  void Write() {
    if (is_cancelled_) return End(kHttpCancelled);
    SetDeadline();
    parser_.emplace();
    parser_->header_limit(kMaxHeaderBytes);
    parser_->body_limit(boost::none);
    connection_->WithStream([this](auto& stream) {
      http::async_write(stream, request_,
                        [self = shared_from_this()](const beast::error_code& failure, size_t) {
                          if (failure) return self->FailBeforeAnswer("send", failure);
                          self->ReadHeader();
                        });
    });
  }

  void ReadHeader() {
    connection_->WithStream([this](auto& stream) {
      http::async_read_header(
          stream, connection_->buffer, *parser_,
          [self = shared_from_this()](const beast::error_code& failure, size_t) {
            if (failure) return self->FailBeforeAnswer("read", failure);
            self->status_ = self->parser_->get().result_int();
            self->ReadBody();
          });
    });
  }

  void ReadBody() {
    if (parser_->is_done()) return Complete();
    parser_->get().body().data = bytes_.data();
    parser_->get().body().size = bytes_.size();
    parser_->get().body().more = true;
    connection_->WithStream([this](auto& stream) {
      http::async_read_some(stream, connection_->buffer, *parser_,
                            [self = shared_from_this()](const beast::error_code& failure, size_t) {
                              self->TakeBody();
                              const bool goes_on = !failure || failure == http::error::need_buffer;
                              if (!goes_on) return self->Fail("read", failure);
                              self->ReadBody();
                            });
    });
  }

  void TakeBody() {
    const size_t count = bytes_.size() - parser_->get().body().size;
    if (count > 0 && events_.on_body) {
      events_.on_body(static_cast<int>(status_), std::string_view(bytes_.data(), count));
    }
  }

  void Complete() {
    if (parser_->keep_alive() && !is_cancelled_) client_.idle_.push_back(std::move(connection_));
    End("");
  }

  // A server may close an idle connection just before a request arrives there. The request was not
  // read then, so it goes to a new connection.
  void FailBeforeAnswer(const char* what, const beast::error_code& failure) {
    const bool closed = failure == http::error::end_of_stream ||
                        failure == asio::error::connection_reset ||
                        failure == asio::error::broken_pipe || failure == asio::error::eof ||
                        failure == asio::ssl::error::stream_truncated;
    if (is_reused_ && closed && !is_cancelled_) return Connect();
    Fail(what, failure);
  }

  void Fail(const char* what, const beast::error_code& failure) {
    if (is_cancelled_) return End(kHttpCancelled);
    if (failure == beast::error::timeout) return End(kHttpTimeout);
    End(absl::StrCat(what, ": ", failure.message()));
  }

  void End(const std::string& error) {
    const std::shared_ptr<Call> self = shared_from_this();
    if (client_.calls_.erase(self) > 0) events_.on_end(static_cast<int>(status_), error);
  }

  Impl& client_;
  HttpCallEvents events_;
  std::optional<std::chrono::steady_clock::time_point> deadline_;
  http::request<http::string_body> request_;
  std::unique_ptr<HttpConnection> connection_;
  std::optional<http::response_parser<http::buffer_body>> parser_;
  std::array<char, kReadBytes> bytes_;
  unsigned status_ = 0;
  bool is_reused_ = false;
  bool is_cancelled_ = false;
};

void HttpClient::Impl::Start(const std::string& path, std::string body, int64_t timeout_ms,
                             HttpCallEvents events) {
  auto call = std::make_shared<Call>(*this, path, std::move(body), timeout_ms, std::move(events));
  asio::post(io_, [this, call = std::move(call)] {
    calls_.insert(call);
    call->Begin();
  });
}

void HttpClient::Impl::CancelAll() {
  asio::post(io_, [this] {
    for (const std::shared_ptr<Call>& call : calls_) call->Cancel();
  });
}

void HttpClient::Impl::Resolve(std::function<void(const std::string& error)> done) {
  if (!addresses_.empty()) return done("");
  resolver_.async_resolve(
      server_.host, absl::StrCat(server_.port),
      [this, done = std::move(done)](const beast::error_code& failure,
                                     const Tcp::resolver::results_type& addresses) {
        if (!failure) addresses_ = addresses;
        done(failure ? absl::StrCat("resolve ", server_.host, ": ", failure.message()) : "");
      });
}

HttpClient::HttpClient(const HostPort& server, HttpClientOptions options)
    : impl_(std::make_unique<Impl>(server, std::move(options))) {}
HttpClient::~HttpClient() = default;

void HttpClient::Start(const std::string& path, std::string body, int64_t timeout_ms,
                       HttpCallEvents events) {
  impl_->Start(path, std::move(body), timeout_ms, std::move(events));
}

void HttpClient::CancelAll() { impl_->CancelAll(); }

}  // namespace baton
