// Clients that are slow, idle or too many, over real sockets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/http/http_server_fixture.h"
#include "tests/http/raw_http_client.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

class HttpServerLimits : public HttpServerTest {};

TEST_F(HttpServerLimits, AClientThatReadsNothingLosesItsAnswer) {
  Start({.stall_ms = 100});
  RawHttpClient client = Client(/*receive_bytes=*/4096);
  const auto exchange = Hold(client);
  exchange->Begin({.status = 200, .content_type = "", .headers = {}, .body = ""});
  EXPECT_TRUE(exchange->Write(std::string(3 << 20, 'x')));
  EXPECT_TRUE(IsGone());
  EXPECT_FALSE(exchange->Write("x"));
}

// The client reads often enough not to count as stalled, but not all of the answer in ten times
// that time. A busy machine may stall it all the same; then the limit grows.
TEST_F(HttpServerLimits, AClientThatReadsTooSlowlyLosesItsAnswer) {
  int reads = 0;
  for (const int64_t stall_ms : {200, 1000}) {
    if (reads > 100) break;
    gone_ = 0;
    Start({.stall_ms = stall_ms});
    RawHttpClient client = Client(/*receive_bytes=*/64 << 10);
    const auto exchange = Hold(client);
    exchange->Begin({.status = 200, .content_type = "", .headers = {}, .body = ""});
    EXPECT_TRUE(exchange->Write(std::string(200 << 20, 'x')));
    std::atomic<bool> done = false;
    reads = 0;
    std::thread reader([&] {
      while (!done && client.ReceivesSome(16 << 10)) {
        ++reads;
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
    });
    EXPECT_TRUE(IsGone());
    done = true;
    reader.join();
  }
  EXPECT_GT(reads, 100);  // more than the sockets' buffers hold, so writing made progress
}

TEST_F(HttpServerLimits, TooMuchUnreadBreaksTheAnswerOff) {
  Start({.max_queued_bytes = 1 << 20});
  RawHttpClient client = Client(/*receive_bytes=*/4096);
  const auto exchange = Hold(client);
  exchange->Begin({.status = 200, .content_type = "", .headers = {}, .body = ""});
  int written = 0;
  while (exchange->Write(std::string(100'000, 'x')) && written < 1000) ++written;
  EXPECT_LT(written, 100);
  EXPECT_FALSE(client.Read().complete);
  EXPECT_EQ(gone_, 0);  // the writer knows it
}

TEST_F(HttpServerLimits, SlowHeadersAndBodiesAreRefused) {
  Start({.header_ms = 100, .body_ms = 100});
  RawHttpClient slow_head = Client();
  EXPECT_EQ(slow_head.Ask("GET /hello HTTP/1.1\r\n").status, 408);
  EXPECT_TRUE(slow_head.IsClosed());
  RawHttpClient slow_body = Client();
  EXPECT_EQ(slow_body.Ask("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nx").status,
            408);
  EXPECT_TRUE(slow_body.IsClosed());
}

TEST_F(HttpServerLimits, AnIdleConnectionIsClosed) {
  // On a slow machine a connection may be idle for 100 ms before its first request.
  for (const int64_t idle_ms : {100, 1000, 5000}) {
    Start({.idle_ms = idle_ms});
    RawHttpClient client = Client();
    const int status = client.Ask(kGet).status;
    if (status != 200 && idle_ms < 5000) continue;
    EXPECT_EQ(status, 200);
    EXPECT_TRUE(client.IsClosed());
    EXPECT_TRUE(Eventually([this] { return server_->connections() == 0; }));
    return;
  }
}

TEST_F(HttpServerLimits, OneConnectionTooManyIsToldSo) {
  Start({.max_connections = 2});
  RawHttpClient first = Client();
  RawHttpClient second = Client();
  const std::shared_ptr<HttpExchange> held = Hold(first);
  const std::shared_ptr<HttpExchange> other = Hold(second);
  RawHttpClient third = Client();
  const RawHttpAnswer answer = third.Ask(kGet);
  EXPECT_EQ(answer.status, 503);
  EXPECT_THAT(answer.body, HasSubstr("2 connections"));
  EXPECT_TRUE(third.IsClosed());
  first.Close();
  EXPECT_TRUE(Eventually([this] { return Client().Ask(kGet).status == 200; }));
}

// Clients that send half a request must not keep others out, for example the probes of kubelets.
TEST_F(HttpServerLimits, AtTheLimitTheConnectionThatWaitsLongestMakesRoom) {
  Start({.max_connections = 3});
  RawHttpClient busy = Client();
  const std::shared_ptr<HttpExchange> held = Hold(busy);
  RawHttpClient half = Client();
  half.Send("GET /hel");
  EXPECT_TRUE(Eventually([this] { return server_->connections() == 2; }));
  RawHttpClient idle = Client();
  EXPECT_EQ(idle.Ask(kGet).status, 200);
  RawHttpClient next = Client();
  EXPECT_EQ(next.Ask(kGet).status, 200);
  EXPECT_TRUE(half.IsClosed());
  EXPECT_EQ(idle.Ask(kGet).status, 200) << "it came later";
  EXPECT_EQ(Client().Ask(kGet).status, 200);
  EXPECT_TRUE(next.IsClosed());
  held->Reply({.status = 200, .content_type = "text/plain", .headers = {}, .body = "done"});
  EXPECT_EQ(busy.Read().body, "done");
}

TEST_F(HttpServerLimits, RefusedRequestsAreReportedWithTheIdOfTheirAnswer) {
  std::mutex mutex;
  std::vector<std::string> reports;
  HttpServerOptions options;
  options.refused = [&](const HttpRequest& request, const std::string& id,
                        const HttpProblem& problem) {
    const std::lock_guard lock(mutex);
    reports.push_back(
        absl::StrCat(request.method, " ", request.path, " ", id, " ", problem.status));
  };
  Start(options);
  const std::string post = "POST /echo HTTP/1.1\r\nHost: h\r\nx-request-id: r1\r\n";
  EXPECT_EQ(Client().Ask(post + "Content-Type: text/xml\r\nContent-Length: 1\r\n\r\nx").status,
            415);
  EXPECT_EQ(Client().Ask(post + "Content-Length: 5000\r\n\r\n").status, 413);
  EXPECT_EQ(Client().Ask(kGet).status, 200);
  EXPECT_EQ(Client().Ask("GET /none HTTP/1.1\r\nHost: h\r\nx-request-id: r2\r\n\r\n").status, 404);
  const std::lock_guard lock(mutex);
  EXPECT_THAT(reports,
              ::testing::ElementsAre("POST /echo r1 415", "POST /echo r1 413", "GET /none r2 404"));
}

TEST_F(HttpServerLimits, BodiesThatAreBeingReceivedAreBoundedTogether) {
  Start({.max_bodies_bytes = 1500});
  const std::string head = "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\n";
  RawHttpClient first = Client();
  first.Send(head + std::string(900, 'x'));
  EXPECT_TRUE(Eventually([&] {
    RawHttpClient second = Client();
    second.Send(head + std::string(900, 'x'));
    // Otherwise the server may read the whole body at once, and then it is not being received.
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const RawHttpAnswer answer = second.Ask(std::string(100, 'x'));
    return answer.status == 503;
  }));
  EXPECT_EQ(first.Ask(std::string(100, 'x')).status, 200);
  EXPECT_EQ(Client().Ask(head + std::string(1000, 'x')).status, 200);
}

}  // namespace
}  // namespace baton
