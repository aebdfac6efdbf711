// Tests the server with TLS, and its refusals before a request's body is read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "http/http_server.h"
#include "security/tls_session.h"
#include "tests/http/raw_http_client.h"
#include "tests/security/trial_set.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

constexpr char kGet[] = "GET /hello HTTP/1.1\r\nHost: h\r\n\r\n";
constexpr char kLastGet[] = "GET /hello HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";

// A client with TLS that sends bytes as they are.
class RawTlsClient {
 public:
  RawTlsClient(int32_t port, const TlsContext& context)
      : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    session_ = std::make_unique<TlsSession>(context, socket_.get());
  }

  // The socket blocks, so each call waits.
  bool Send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t count = session_->Write(std::as_bytes(std::span(bytes)));
      if (count <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(count));
    }
    return true;
  }
  // Returns everything until the server closes the connection.
  std::string ReadAll() {
    std::string all;
    std::array<std::byte, 3000> bytes;
    ssize_t count = 0;
    while ((count = session_->Read(bytes)) > 0) {
      all.append(reinterpret_cast<const char*>(bytes.data()), static_cast<size_t>(count));
    }
    return all;
  }
  bool ReadSome() {
    std::array<std::byte, 100> bytes;
    return session_->Read(bytes) > 0;
  }

 private:
  FileDescriptor socket_;
  std::unique_ptr<TlsSession> session_;
};

int CountOf(const std::string& text, const std::string& word) {
  int count = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

class HttpServerTlsTest : public ::testing::Test {
 protected:
  void Start(HttpServerOptions options = {}) {
    HttpRoutes routes;
    routes.Add(
        {.method = "GET", .path = "/hello", .handler = [](HttpRequest, auto exchange) {
           exchange->Reply(
               {.status = 200, .content_type = "text/plain", .headers = {}, .body = "hello"});
         }});
    routes.Add({.method = "POST",
                .path = "/echo",
                .handler =
                    [](HttpRequest request, auto exchange) {
                      exchange->Reply({.status = 200,
                                       .content_type = "text/plain",
                                       .headers = {},
                                       .body = std::move(request.body)});
                    },
                .max_body_bytes = 10'000'000});
    options.tls = *TlsContextSource::Open(set_.Files("router"),
                                          {.side = TlsSide::kServer, .verify_peer = false});
    auto started = HttpServer::Start(options, std::move(routes));
    ASSERT_TRUE(started.ok()) << started.status();
    server_ = *std::move(started);
  }
  RawTlsClient Client() { return RawTlsClient(server_->port(), *client_context_); }

  const TrialSet set_;
  const std::shared_ptr<const TlsContext> client_context_ =
      *TlsContext::Load(set_.Files(""), {.side = TlsSide::kClient});
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTlsTest, AnswersPipelinedRequests) {
  Start();
  RawTlsClient client = Client();
  ASSERT_TRUE(client.Send(std::string(kGet) + kGet + kLastGet));
  EXPECT_EQ(CountOf(client.ReadAll(), "hello"), 3);
}

TEST_F(HttpServerTlsTest, MovesLargeBodies) {
  Start();
  RawTlsClient client = Client();
  const std::string body(5'000'000, 'b');
  ASSERT_TRUE(
      client.Send("POST /echo HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: " +
                  std::to_string(body.size()) + "\r\n\r\n"));
  ASSERT_TRUE(client.Send(body));
  const std::string answer = client.ReadAll();
  EXPECT_EQ(answer.substr(answer.find("\r\n\r\n") + 4) == body, true);
}

TEST_F(HttpServerTlsTest, ClosesAConnectionWithoutTls) {
  Start();
  RawHttpClient client(server_->port());
  client.Send(kGet);
  EXPECT_EQ(client.Read().status, 0);
}

TEST_F(HttpServerTlsTest, LimitsTheTimeOfAHandshake) {
  HttpServerOptions options;
  options.header_ms = 300;
  Start(options);
  RawHttpClient client(server_->port());
  client.Send("\x16\x03\x01\x02");  // the beginning of a record
  EXPECT_TRUE(client.IsClosed());
}

TEST_F(HttpServerTlsTest, ServesOthersDuringHalfOpenHandshakes) {
  Start();
  std::vector<std::unique_ptr<RawHttpClient>> silent;
  for (int i = 0; i < 100; ++i) {
    silent.push_back(std::make_unique<RawHttpClient>(server_->port()));
    silent.back()->Send("\x16");
  }
  RawTlsClient client = Client();
  ASSERT_TRUE(client.Send(kLastGet));
  EXPECT_THAT(client.ReadAll(), HasSubstr("hello"));
}

TEST_F(HttpServerTlsTest, SeesAClientThatLeaves) {
  Start();
  {
    RawTlsClient client = Client();
    ASSERT_TRUE(client.Send(kGet));
    ASSERT_TRUE(client.ReadSome());
    EXPECT_EQ(server_->connections(), 1);
  }
  for (int i = 0; i < 2000 && server_->connections() > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(server_->connections(), 0);
}

TEST_F(HttpServerTlsTest, UsesFilesThatWereReplaced) {
  Start();
  const TrialSet other;
  std::filesystem::copy_file(other.Path("router.pem"), set_.Path("new.pem"));
  std::filesystem::rename(set_.Path("new.pem"), set_.Path("router.pem"));
  const auto trusts_other = *TlsContext::Load(other.Files(""), {.side = TlsSide::kClient});
  std::string answer;
  for (int i = 0; i < 200 && answer.empty(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    RawTlsClient client(server_->port(), *trusts_other);
    if (client.Send(kLastGet)) answer = client.ReadAll();
  }
  EXPECT_THAT(answer, HasSubstr("hello"));
}

TEST_F(HttpServerTlsTest, RefusesARequestBeforeItsBody) {
  HttpServerOptions options;
  options.admit = [](const HttpRequest& request,
                     const HttpRoute& route) -> std::optional<HttpProblem> {
    if (route.path == "/hello" || request.Header("authorization") != nullptr) return std::nullopt;
    return HttpProblem{.status = 401, .message = "unauthenticated"};
  };
  Start(options);
  RawTlsClient refused = Client();
  ASSERT_TRUE(refused.Send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n"));
  const std::string answer = refused.ReadAll();
  EXPECT_THAT(answer, HasSubstr("HTTP/1.1 401 "));
  EXPECT_THAT(answer, HasSubstr("WWW-Authenticate: Bearer\r\n"));
  RawTlsClient admitted = Client();
  ASSERT_TRUE(
      admitted.Send("POST /echo HTTP/1.1\r\nHost: h\r\nAuthorization: x\r\n"
                    "Connection: close\r\nContent-Length: 2\r\n\r\nok"));
  EXPECT_THAT(admitted.ReadAll(), HasSubstr("\r\n\r\nok"));
}

}  // namespace
}  // namespace baton
