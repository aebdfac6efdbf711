// A server with some paths, for clients over real sockets.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "http/http_server.h"
#include "tests/http/raw_http_client.h"

namespace baton {

inline constexpr size_t kMaxBody = 1000;
inline constexpr char kGet[] = "GET /hello HTTP/1.1\r\nHost: h\r\n\r\n";

class HttpServerTest : public ::testing::Test {
 protected:
  // /hello and /echo answer at once; /held keeps its exchange.
  void Start(HttpServerOptions options = {}, size_t max_body_bytes = kMaxBody) {
    HttpRoutes routes;
    const auto reply = [](const std::shared_ptr<HttpExchange>& exchange, std::string body) {
      exchange->Reply(
          {.status = 200, .content_type = "text/plain", .headers = {}, .body = std::move(body)});
    };
    routes.Add({.method = "GET", .path = "/hello", .handler = [reply](HttpRequest, auto exchange) {
                  reply(exchange, "hello");
                }});
    routes.Add(
        {.method = "POST",
         .path = "/echo",
         .handler = [reply](HttpRequest request, auto exchange) { reply(exchange, request.body); },
         .max_body_bytes = max_body_bytes,
         .content_type = "application/json"});
    routes.Add({.method = "GET", .path = "/dropped", .handler = [](HttpRequest, auto) {}});
    routes.Add({.method = "GET", .path = "/held", .handler = [this](HttpRequest, auto exchange) {
                  std::lock_guard lock(mutex_);
                  exchange->OnGone([this] { Gone(); });
                  held_.push_back(std::move(exchange));
                  changed_.notify_all();
                }});
    server_ = *HttpServer::Start(options, std::move(routes));
  }
  RawHttpClient Client(int receive_bytes = 0) {
    return RawHttpClient(server_->port(), receive_bytes);
  }

  void Gone() {
    std::lock_guard lock(mutex_);
    ++gone_;
    changed_.notify_all();
  }
  bool IsGone() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), [this] { return gone_ > 0; });
  }
  // Returns the exchange of a client that asks for /held.
  std::shared_ptr<HttpExchange> Hold(RawHttpClient& client, std::string_view version = "1.1") {
    client.Send("GET /held HTTP/" + std::string(version) + "\r\nHost: h\r\n\r\n");
    return TakeHeld();
  }
  // Waits for an exchange of /held.
  std::shared_ptr<HttpExchange> TakeHeld() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(
        changed_.wait_for(lock, std::chrono::seconds(20), [this] { return !held_.empty(); }));
    auto exchange = std::move(held_.back());
    held_.pop_back();
    return exchange;
  }
  bool Eventually(const std::function<bool()>& done) {
    for (int i = 0; i < 2000; ++i) {
      if (done()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<HttpExchange>> held_;
  int gone_ = 0;
  std::unique_ptr<HttpServer> server_;
};

}  // namespace baton
