#include "http/http_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "security/tls_context.h"
#include "tests/http/http_server_fixture.h"
#include "tests/security/trial_set.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

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
    EXPECT_TRUE(state_->changed.wait_for(lock, std::chrono::seconds(60),
                                         [this] { return state_->ends > 0; }));
    EXPECT_EQ(state_->ends, 1);
    return state_->ended;
  }
  void WaitForBody(const std::string& body) {
    std::unique_lock lock(state_->mutex);
    EXPECT_TRUE(state_->changed.wait_for(lock, std::chrono::seconds(60),
                                         [&] { return state_->ended.body == body; }));
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

Ended Ask(HttpClient& client, const std::string& path, const std::string& body = "",
          int64_t timeout_ms = 0) {
  Collector collector;
  client.Start(path, body, timeout_ms, collector.Events());
  return collector.Wait();
}

class HttpClientTest : public HttpServerTest {
 protected:
  HostPort Address() const { return {"127.0.0.1", server_->port()}; }
  // Returns the exchange of a call of /held.
  std::shared_ptr<HttpExchange> Held() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(
        changed_.wait_for(lock, std::chrono::seconds(60), [this] { return !held_.empty(); }));
    auto exchange = std::move(held_.back());
    held_.pop_back();
    return exchange;
  }
};

TEST_F(HttpClientTest, GetsAndPostsOverOneConnection) {
  Start();
  HttpClient client(Address());
  for (int i = 0; i < 3; ++i) {
    const Ended got = Ask(client, "/hello");
    EXPECT_EQ(got.status, 200);
    EXPECT_EQ(got.error, "");
    EXPECT_EQ(got.body, "hello");
    EXPECT_EQ(Ask(client, "/echo", "{\"n\":1}").body, "{\"n\":1}");
  }
  EXPECT_EQ(Ask(client, "/nothing").status, 404);
  EXPECT_EQ(server_->connections(), 1);
}

TEST_F(HttpClientTest, PassesABodyOnAsItComes) {
  Start();
  HttpClient client(Address());
  Collector collector;
  client.Start("/held", "", 0, collector.Events());
  const auto exchange = Held();
  exchange->Begin({.status = 200, .content_type = "text/event-stream", .headers = {}, .body = ""});
  exchange->Write("one ");
  collector.WaitForBody("one ");
  exchange->Write("two");
  collector.WaitForBody("one two");
  exchange->End();
  EXPECT_EQ(collector.Wait().error, "");
}

TEST_F(HttpClientTest, RunsCallsSideBySide) {
  Start();
  HttpClient client(Address());
  std::vector<Collector> held(3);
  for (Collector& collector : held) client.Start("/held", "", 0, collector.Events());
  EXPECT_EQ(Ask(client, "/hello").body, "hello");
  for (int i = 0; i < 3; ++i) {
    Held()->Reply({.status = 200, .content_type = "text/plain", .headers = {}, .body = "late"});
  }
  for (Collector& collector : held) EXPECT_EQ(collector.Wait().body, "late");
}

TEST_F(HttpClientTest, ATimeLimitCoversTheWholeCall) {
  Start();
  HttpClient client(Address());
  const Ended ended = Ask(client, "/held", "", /*timeout_ms=*/50);
  EXPECT_EQ(ended.error, kHttpTimeout);
  EXPECT_TRUE(IsGone());  // the server sees the client leave
  EXPECT_EQ(Ask(client, "/hello").body, "hello");
}

TEST_F(HttpClientTest, CancelledCallsEndAtOnceAndOthersMayFollow) {
  Start();
  HttpClient client(Address());
  Collector collector;
  client.Start("/held", "", 0, collector.Events());
  const auto exchange = Held();
  client.CancelAll();
  EXPECT_EQ(collector.Wait().error, kHttpCancelled);
  EXPECT_TRUE(IsGone());
  EXPECT_EQ(Ask(client, "/hello").body, "hello");
}

TEST_F(HttpClientTest, AClosedIdleConnectionIsReplaced) {
  HttpServerOptions options;
  options.idle_ms = 50;
  Start(options);
  HttpClient client(Address());
  EXPECT_EQ(Ask(client, "/hello").body, "hello");
  EXPECT_TRUE(Eventually([&] { return server_->connections() == 0; }));
  EXPECT_EQ(Ask(client, "/hello").body, "hello");
}

TEST_F(HttpClientTest, ABrokenAnswerIsAnError) {
  Start();
  HttpClient client(Address());
  Collector collector;
  client.Start("/held", "", 0, collector.Events());
  const auto exchange = Held();
  exchange->Begin({.status = 200, .content_type = "text/event-stream", .headers = {}, .body = ""});
  exchange->Write("one ");
  collector.WaitForBody("one ");
  exchange->Abort();
  const Ended ended = collector.Wait();
  EXPECT_EQ(ended.status, 200);
  EXPECT_THAT(ended.error, HasSubstr("read: "));
}

TEST_F(HttpClientTest, AServerThatIsNotThereIsNamed) {
  Start();
  const HostPort address = Address();
  server_.reset();
  HttpClient client(address);
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
    exchange = Held();
  }
  EXPECT_TRUE(IsGone());
}

class HttpTlsClientTest : public HttpClientTest {
 protected:
  void StartWithTls() {
    HttpServerOptions options;
    options.listen = "0.0.0.0:0";
    options.tls = *TlsContextSource::Open(set_.Files("router"),
                                          {.side = TlsSide::kServer, .verify_peer = false});
    Start(options);
  }
  std::unique_ptr<HttpClient> TlsClient(const HostPort& server, const TrialSet& set) {
    return std::make_unique<HttpClient>(
        server,
        HttpClientOptions{.tls = *TlsContext::Load(set.Files(""), {.side = TlsSide::kClient})});
  }
  const TrialSet set_;
};

TEST_F(HttpTlsClientTest, AsksOverOneConnection) {
  StartWithTls();
  for (const char* host : {"127.0.0.1", "localhost"}) {
    const auto client = TlsClient({host, server_->port()}, set_);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(Ask(*client, "/hello").body, "hello") << host;
    const std::string body = "\"" + std::string(900, 'b') + "\"";
    EXPECT_EQ(Ask(*client, "/echo", body).body, body);
    EXPECT_EQ(server_->connections(), 1);
    client->CancelAll();
  }
}

TEST_F(HttpTlsClientTest, RefusesOtherAuthoritiesAndOtherNames) {
  StartWithTls();
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
