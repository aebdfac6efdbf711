#include "http/http_client.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/file_descriptor.h"
#include "security/tls_context.h"
#include "tests/http/http_server_fixture.h"
#include "tests/security/trial_set.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

constexpr auto kPatience = std::chrono::seconds(60);
constexpr size_t kLongBody = 5'000'000;  // more than sockets hold

struct Ended {
  int status = -1;
  std::string error;
  std::string body;
};

// Collects the events of one call, and waits for its end.
class Collector {
 public:
  HttpCallEvents Events() {
    return {.on_body =
                [state = state_](int, std::string_view bytes) {
                  std::lock_guard lock(state->mutex);
                  state->ended.body += bytes;
                  state->changed.notify_all();
                },
            .on_end =
                [state = state_](int status, const std::string& error) {
                  std::lock_guard lock(state->mutex);
                  ++state->ends;
                  state->ended.status = status;
                  state->ended.error = error;
                  state->changed.notify_all();
                }};
  }
  Ended Wait() {
    std::unique_lock lock(state_->mutex);
    EXPECT_TRUE(state_->changed.wait_for(lock, kPatience, [this] { return state_->ends > 0; }));
    return state_->ended;
  }
  void WaitForBody(const std::string& body) {
    std::unique_lock lock(state_->mutex);
    EXPECT_TRUE(
        state_->changed.wait_for(lock, kPatience, [&] { return state_->ended.body == body; }));
  }
  // Of a client that is gone: how often on_end was called.
  int ends() const {
    std::lock_guard lock(state_->mutex);
    return state_->ends;
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    int ends = 0;
    Ended ended;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

// A listening socket on the loopback address.
class Listener {
 public:
  explicit Listener(int backlog) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(socket_.get(), generic, length), 0);
    EXPECT_EQ(getsockname(socket_.get(), generic, &length), 0);
    port_ = ntohs(address.sin_port);
    if (backlog < 0) return;
    EXPECT_EQ(listen(socket_.get(), backlog), 0);
  }
  HostPort address() const { return {"127.0.0.1", port_}; }
  FileDescriptor Accept() const { return FileDescriptor(accept(socket_.get(), nullptr, nullptr)); }
  // Connects without waiting for the other side.
  FileDescriptor Connect() const {
    FileDescriptor client(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port_));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    (void)connect(client.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address));
    return client;
  }

 private:
  FileDescriptor socket_;
  int32_t port_ = 0;
};

// Reads one request without a body. Returns false if the client has closed the connection.
bool ReadRequest(const FileDescriptor& connection) {
  std::string request;
  char c;
  while (!request.ends_with("\r\n\r\n")) {
    if (recv(connection.get(), &c, 1, 0) != 1) return false;
    request += c;
  }
  return true;
}
void SendText(const FileDescriptor& connection, std::string_view text) {
  EXPECT_EQ(send(connection.get(), text.data(), text.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(text.size()));
}
constexpr char kAnswer[] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

Ended Ask(HttpClient& client, const std::string& path, const std::string& body = "",
          int64_t timeout_ms = 0) {
  Collector collector;
  client.Start(path, body, timeout_ms, collector.Events());
  return collector.Wait();
}

class HttpClientTest : public HttpServerTest {
 protected:
  HostPort Address() const { return {"127.0.0.1", server_->port()}; }
  // Expects that the client passes the parts of a stream on before the next is there.
  void ExpectPassedOn(HttpClient& client) {
    Collector collector;
    client.Start("/held", "", 0, collector.Events());
    const auto exchange = TakeHeld();
    exchange->Begin(
        {.status = 200, .content_type = "text/event-stream", .headers = {}, .body = ""});
    exchange->Write("one ");
    collector.WaitForBody("one ");
    exchange->Write("two");
    collector.WaitForBody("one two");
    exchange->End();
    EXPECT_EQ(collector.Wait().error, "");
  }
};

TEST_F(HttpClientTest, GetsAndPosts) {
  Start();
  HttpClient client(Address());
  const Ended got = Ask(client, "/hello");
  EXPECT_EQ(got.status, 200);
  EXPECT_EQ(got.error, "");
  EXPECT_EQ(got.body, "hello");
  EXPECT_EQ(Ask(client, "/echo", "{\"n\":1}").body, "{\"n\":1}");
  EXPECT_EQ(Ask(client, "/nothing").status, 404);
}

TEST_F(HttpClientTest, MovesLongBodies) {
  Start({}, kLongBody);
  HttpClient client(Address());
  const std::string body(kLongBody, 'b');
  EXPECT_EQ(Ask(client, "/echo", body).body == body, true);
}

TEST(HttpClient, KeepsItsConnection) {
  auto listener = std::make_unique<Listener>(5);
  auto client = std::make_unique<HttpClient>(listener->address());
  std::thread server([&] {
    const FileDescriptor connection = listener->Accept();
    listener.reset();  // a second connection would be refused
    while (ReadRequest(connection)) SendText(connection, kAnswer);
  });
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Ask(*client, "/x").body, "ok");
  client.reset();
  server.join();
}

TEST(HttpClient, AsksAgainWhereAnIdleConnectionWasClosedOrGotBytes) {
  for (const char* unexpected : {"", "HTTP/1.1 408 Late\r\nContent-Length: 0\r\n\r\n"}) {
    const Listener listener(5);
    std::thread server([&] {
      for (int i = 0; i < 2; ++i) {
        const FileDescriptor connection = listener.Accept();
        ReadRequest(connection);
        SendText(connection, std::string(kAnswer) + unexpected);
      }
    });
    HttpClient client(listener.address());
    EXPECT_EQ(Ask(client, "/x").body, "ok") << unexpected;
    const Ended second = Ask(client, "/x");
    EXPECT_EQ(second.status, 200) << unexpected;
    EXPECT_EQ(second.body, "ok") << unexpected << second.error;
    server.join();
  }
}

TEST(HttpClient, EndsWhileItConnects) {
  const Listener listener(0);
  // These fill the queue. The system drops further attempts without an answer.
  std::vector<FileDescriptor> queued;
  for (int i = 0; i < 4; ++i) queued.push_back(listener.Connect());
  for (const char* host : {"127.0.0.1", "localhost"}) {  // localhost may have two addresses
    HttpClient client({host, listener.address().port});
    EXPECT_EQ(Ask(client, "/x", "", /*timeout_ms=*/300).error, kHttpTimeout) << host;
    Collector cancelled;
    client.Start("/x", "", 0, cancelled.Events());
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    client.CancelAll();
    EXPECT_EQ(cancelled.Wait().error, kHttpCancelled) << host;
  }
}

TEST_F(HttpClientTest, PassesABodyOnAsItComes) {
  Start();
  HttpClient client(Address());
  ExpectPassedOn(client);
}

TEST_F(HttpClientTest, RunsCallsSideBySide) {
  Start();
  HttpClient client(Address());
  std::vector<Collector> held(3);
  for (Collector& collector : held) client.Start("/held", "", 0, collector.Events());
  EXPECT_EQ(Ask(client, "/hello").body, "hello");
  for (int i = 0; i < 3; ++i) {
    TakeHeld()->Reply({.status = 200, .content_type = "text/plain", .headers = {}, .body = "late"});
  }
  for (Collector& collector : held) EXPECT_EQ(collector.Wait().body, "late");
}

TEST_F(HttpClientTest, ATimeLimitCoversTheWholeCall) {
  Start();
  HttpClient client(Address());
  Collector collector;
  client.Start("/held", "", /*timeout_ms=*/1000, collector.Events());
  const auto exchange = TakeHeld();
  EXPECT_EQ(collector.Wait().error, kHttpTimeout);
  EXPECT_TRUE(IsGone());  // the server sees the client leave
  EXPECT_EQ(Ask(client, "/hello").body, "hello");
}

TEST_F(HttpClientTest, CancelledCallsEndAtOnceAndOthersMayFollow) {
  Start();
  HttpClient client(Address());
  Collector collector;
  client.Start("/held", "", 0, collector.Events());
  const auto exchange = TakeHeld();
  client.CancelAll();
  EXPECT_EQ(collector.Wait().error, kHttpCancelled);
  EXPECT_TRUE(IsGone());
  EXPECT_EQ(Ask(client, "/hello").body, "hello");
}

TEST_F(HttpClientTest, ABrokenAnswerIsAnError) {
  Start();
  HttpClient client(Address());
  Collector collector;
  client.Start("/held", "", 0, collector.Events());
  const auto exchange = TakeHeld();
  exchange->Begin({.status = 200, .content_type = "text/event-stream", .headers = {}, .body = ""});
  exchange->Write("one ");
  collector.WaitForBody("one ");
  exchange->Abort();
  const Ended ended = collector.Wait();
  EXPECT_EQ(ended.status, 200);
  EXPECT_THAT(ended.error, HasSubstr("read: "));
}

TEST(HttpClient, AServerThatIsNotThereIsNamed) {
  const Listener bound(/*backlog=*/-1);
  HttpClient client(bound.address());
  const Ended ended = Ask(client, "/hello");
  EXPECT_EQ(ended.status, 0);
  EXPECT_THAT(ended.error, HasSubstr("connect: Connection refused"));
}

TEST_F(HttpClientTest, TheDestructorEndsRunningCallsSilently) {
  Start();
  Collector collector;
  std::shared_ptr<HttpExchange> exchange;
  {
    HttpClient client(Address());
    client.Start("/held", "", 0, collector.Events());
    exchange = TakeHeld();
  }
  EXPECT_TRUE(IsGone());
  EXPECT_EQ(collector.ends(), 0);
}

class HttpTlsClientTest : public HttpClientTest {
 protected:
  HttpServerOptions Options() const {
    HttpServerOptions options;
    options.listen = "0.0.0.0:0";
    options.tls = *TlsContextSource::Open(set_.Files("router"),
                                          {.side = TlsSide::kServer, .verify_peer = false});
    return options;
  }
  std::unique_ptr<HttpClient> TlsClient(const HostPort& server, const TrialSet& set) {
    return std::make_unique<HttpClient>(
        server,
        HttpClientOptions{.tls = *TlsContext::Load(set.Files(""), {.side = TlsSide::kClient})});
  }
  const TrialSet set_;
};

TEST_F(HttpTlsClientTest, MovesBodiesOfAllLengths) {
  Start(Options(), kLongBody);
  for (const char* host : {"127.0.0.1", "localhost"}) {
    const auto client = TlsClient({host, server_->port()}, set_);
    for (const size_t length : {size_t{1}, size_t{900}, kLongBody}) {
      const std::string body(length, 'b');
      EXPECT_EQ(Ask(*client, "/echo", body).body == body, true) << host << " " << length;
    }
  }
}

TEST_F(HttpTlsClientTest, PassesABodyOnAsItComes) {
  Start(Options());
  ExpectPassedOn(*TlsClient(Address(), set_));
}

TEST_F(HttpTlsClientTest, RefusesOtherAuthoritiesAndOtherNames) {
  Start(Options());
  const TrialSet others;
  const auto stranger = TlsClient(Address(), others);
  EXPECT_THAT(Ask(*stranger, "/hello").error, HasSubstr("TLS: certificate verify failed"));
  // A name of this machine that the certificate lacks.
  const auto misled = TlsClient({"127.0.0.2", server_->port()}, set_);
  EXPECT_THAT(Ask(*misled, "/hello").error, HasSubstr("TLS: certificate verify failed"));
}

TEST_F(HttpTlsClientTest, AServerWithoutTlsIsAnError) {
  Start();
  const auto client = TlsClient(Address(), set_);
  const Ended ended = Ask(*client, "/hello", "", /*timeout_ms=*/30'000);
  EXPECT_THAT(ended.error, HasSubstr("TLS: "));
  EXPECT_EQ(ended.status, 0);
}

}  // namespace
}  // namespace baton
