#include "http/http_server.h"

#include <sys/socket.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/connection_acceptor.h"
#include "common/descriptor_limit.h"
#include "common/listening_sockets.h"
#include "common/status_macros.h"
#include "http/http_connection.h"
#include "http/socket_options.h"

namespace baton {
namespace {

using boost::system::error_code;

constexpr size_t kScratchBytes = size_t{64} << 10;
constexpr std::chrono::milliseconds kTick{100};
constexpr std::chrono::milliseconds kShortestTick{10};

// Time limits are checked this often.
std::chrono::milliseconds TickOf(const HttpServerOptions& options) {
  const int64_t shortest =
      std::min({options.header_ms, options.body_ms, options.idle_ms, options.stall_ms});
  return std::clamp(std::chrono::milliseconds(shortest / 4), kShortestTick, kTick);
}

// Sends what fits into the socket's buffer, so it never blocks. With TLS, an answer would need a
// handshake.
void RefuseConnection(FileDescriptor socket, const HttpServed& served, std::span<char> scratch) {
  if (served.options.tls != nullptr) return;
  const int32_t most = served.options.max_connections;
  const HttpProblem problem = {
      .status = 503,
      .message = absl::StrCat("the server has ", most, " connections, the limit. Try again later")};
  HttpResponse response = served.options.problem_response
                              ? served.options.problem_response(problem)
                              : HttpResponse{.status = 503,
                                             .content_type = "text/plain",
                                             .headers = {},
                                             .body = problem.message};
  const std::string text = MakeHttpHead(response, response.body.size(), {}).text + response.body;
  recv(socket.get(), scratch.data(), scratch.size(), MSG_DONTWAIT);  // closing resets otherwise
  send(socket.get(), text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  shutdown(socket.get(), SHUT_WR);
}

// An I/O thread with its connections.
class IoThread {
 public:
  explicit IoThread(std::shared_ptr<HttpServed> served)
      : served_(std::move(served)),
        tick_(TickOf(served_->options)),
        scratch_(kScratchBytes),
        thread_([this] { context_.run(); }) {}
  ~IoThread() {
    boost::asio::post(context_, [this] {
      timer_.cancel();
      CloseAll();
      work_.reset();
    });
    thread_.join();
  }

  // Takes over a connected socket. At the limit, it takes the place of this thread's connection
  // that has waited longest for its client. So clients that send slowly, or nothing, cannot keep
  // others out.
  void Take(FileDescriptor socket) {
    const auto taken = std::make_shared<FileDescriptor>(std::move(socket));
    boost::asio::post(context_, [this, taken] {
      const bool full = served_->connections >= served_->options.max_connections;
      if (full && !CloseLongestWaiting()) {
        return RefuseConnection(std::move(*taken), *served_, scratch_);
      }
      Add(std::move(*taken));
    });
  }
  void CloseIdle() {
    boost::asio::post(context_, [this] {
      for (const auto& connection : All()) connection->CloseIfIdle();
    });
  }

 private:
  void Add(FileDescriptor descriptor) {
    sockaddr_storage address = {};
    socklen_t length = sizeof(address);
    getsockname(descriptor.get(), reinterpret_cast<sockaddr*>(&address), &length);
    HttpConnection::Socket socket(context_);
    error_code error;
    socket.assign(
        address.ss_family == AF_INET6 ? boost::asio::ip::tcp::v6() : boost::asio::ip::tcp::v4(),
        descriptor.get(), error);
    if (error) return;  // closes the descriptor
    descriptor.Release();
    socket.non_blocking(true, error);
    const auto connection = std::make_shared<HttpConnection>(
        std::move(socket), served_, std::span<char>(scratch_),
        [this](HttpConnection* closed) { connections_.erase(closed); });
    connections_.emplace(connection.get(), connection);
    connection->Start();
    if (!ticking_) Tick();
  }

  // Returns false if every connection is being answered.
  bool CloseLongestWaiting() {
    HttpConnection* longest = nullptr;
    for (const auto& [connection, _] : connections_) {
      const auto since = connection->waiting_since();
      if (since && (longest == nullptr || *since < *longest->waiting_since())) longest = connection;
    }
    if (longest == nullptr) return false;
    longest->Close();
    return true;
  }

  std::vector<std::shared_ptr<HttpConnection>> All() const {
    std::vector<std::shared_ptr<HttpConnection>> all;
    all.reserve(connections_.size());
    for (const auto& [_, connection] : connections_) all.push_back(connection);
    return all;
  }

  void CloseAll() {
    for (const auto& connection : All()) connection->Close();
  }

  // Runs again and again while there are connections.
  void Tick() {
    ticking_ = !connections_.empty();
    if (!ticking_) return;
    timer_.expires_after(tick_);
    timer_.async_wait([this](const error_code& error) {
      if (error) return;
      const auto now = HttpConnection::Clock::now();
      for (const auto& connection : All()) connection->Tick(now);
      Tick();
    });
  }

  const std::shared_ptr<HttpServed> served_;
  const std::chrono::milliseconds tick_;
  boost::asio::io_context context_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_{
      context_.get_executor()};
  boost::asio::steady_timer timer_{context_};
  std::vector<char> scratch_;
  absl::flat_hash_map<HttpConnection*, std::shared_ptr<HttpConnection>> connections_;
  bool ticking_ = false;
  std::thread thread_;  // last member: it starts after all others exist
};

}  // namespace

class HttpServer::Impl {
 public:
  Impl(const HttpServerOptions& options, HttpRoutes routes)
      : served_(std::make_shared<HttpServed>()) {
    served_->options = options;
    served_->routes = std::move(routes);
  }
  ~Impl() { Shutdown(0); }

  absl::Status Start() {
    const HttpServerOptions& options = served_->options;
    ASSIGN_OR_RETURN(const HostPort wanted, ParseHostPort(options.listen));
    ASSIGN_OR_RETURN(ListeningSockets listening, ListenAt(wanted));
    port_ = listening.port;
    address_ = JoinHostPort(wanted.host, port_);
    for (int32_t i = 0; i < std::max(1, options.io_threads); ++i) {
      threads_.push_back(std::make_unique<IoThread>(served_));
    }
    acceptor_ = std::make_unique<ConnectionAcceptor>(
        std::move(listening.sockets), address_,
        LimitsForDescriptors(RaiseDescriptorLimit(), served_->options.tls != nullptr),
        [this](FileDescriptor socket) { Take(std::move(socket)); });
    return absl::OkStatus();
  }

  void EndConnections() { *served_->draining = true; }

  void Drain() {
    EndConnections();
    for (const auto& thread : threads_) thread->CloseIdle();
  }

  void Shutdown(int64_t grace_ms) {
    acceptor_.reset();
    Drain();
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(grace_ms);
    while (served_->connections > 0 && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(kShortestTick);
    }
    threads_.clear();
  }

  const std::string& address() const { return address_; }
  int32_t port() const { return port_; }
  int32_t connections() const { return served_->connections; }

 private:
  // Runs on the acceptor's thread.
  void Take(FileDescriptor socket) {
    SetHttpSocketOptions(socket, served_->options.peer_timeout_ms);
    threads_[next_++ % threads_.size()]->Take(std::move(socket));
  }

  const std::shared_ptr<HttpServed> served_;
  std::string address_;
  int32_t port_ = 0;
  std::vector<std::unique_ptr<IoThread>> threads_;
  size_t next_ = 0;
  std::unique_ptr<ConnectionAcceptor> acceptor_;
};

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const HttpServerOptions& options,
                                                              HttpRoutes routes) {
  auto impl = std::make_unique<Impl>(options, std::move(routes));
  RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

void HttpServer::EndConnections() { impl_->EndConnections(); }
void HttpServer::Drain() { impl_->Drain(); }
void HttpServer::Shutdown(int64_t grace_ms) { impl_->Shutdown(grace_ms); }
const std::string& HttpServer::address() const { return impl_->address(); }
int32_t HttpServer::port() const { return impl_->port(); }
int32_t HttpServer::connections() const { return impl_->connections(); }

}  // namespace baton
