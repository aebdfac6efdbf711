#include "observe/observation_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "absl/strings/str_cat.h"
#include "observe/prometheus_text.h"
#include "tests/http/raw_http_client.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

class ObservationServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto started = ObservationServer::Start("127.0.0.1:0", "a-program", &metrics_);
    ASSERT_TRUE(started.ok()) << started.status();
    server_ = *std::move(started);
  }
  RawHttpAnswer Get(const std::string& path) {
    RawHttpClient client(server_->port());
    return client.Ask(absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: h\r\n\r\n"));
  }

  MetricSet metrics_{MetricPrograms::kRouters};
  std::unique_ptr<ObservationServer> server_;
};

TEST_F(ObservationServerTest, ServesMetricsOfTheProcessFromTheStart) {
  const RawHttpAnswer answer = Get("/metrics");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.headers.at("content-type"), "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_THAT(answer.body, HasSubstr("program=\"a-program\"} 1\n"));
  EXPECT_THAT(answer.body, HasSubstr("baton_ready 0\n"));
  EXPECT_THAT(answer.body, HasSubstr("baton_requests_in_flight 0\n"));
  EXPECT_GT(metrics_.Cells(Metric::kProcessResident), 0);
}

TEST_F(ObservationServerTest, AProgramThatStartsIsAliveAndNotReady) {
  EXPECT_EQ(Get("/livez").status, 200);
  const RawHttpAnswer ready = Get("/readyz");
  EXPECT_EQ(ready.status, 503);
  EXPECT_THAT(ready.body, HasSubstr("starting"));
}

TEST_F(ObservationServerTest, AnswersAsTheSourceSays) {
  absl::Status alive, ready;
  int refreshed = 0;
  const Observation observation(
      server_.get(),
      {.refresh = [&](MetricSet& metrics) { metrics.Set(Metric::kRequestsInFlight, ++refreshed); },
       .alive = [&] { return alive; },
       .ready = [&] { return ready; },
       .targets = [] { return "[]"; }});
  EXPECT_EQ(Get("/livez").status, 200);
  EXPECT_EQ(Get("/readyz").status, 200);
  EXPECT_THAT(Get("/metrics").body, HasSubstr("baton_requests_in_flight 1\n"));
  EXPECT_THAT(Get("/metrics").body, HasSubstr("baton_ready 1\n"));
  EXPECT_EQ(refreshed, 2) << "once for each scrape";

  ready = absl::UnavailableError("it drains");
  EXPECT_EQ(Get("/livez").status, 200);
  EXPECT_EQ(Get("/readyz").status, 503);
  EXPECT_THAT(Get("/readyz").body, HasSubstr("it drains"));
  EXPECT_THAT(Get("/metrics").body, HasSubstr("baton_ready 0\n"));

  ready = absl::OkStatus();
  alive = absl::UnavailableError("the engine hangs");
  EXPECT_EQ(Get("/livez").status, 503);
  EXPECT_THAT(Get("/livez").body, HasSubstr("the engine hangs"));
  EXPECT_EQ(Get("/readyz").status, 503) << "a program that hangs is not ready";
  EXPECT_EQ(Get("/metrics").status, 200) << "its metrics say why";
}

TEST_F(ObservationServerTest, OnlyARouterHasTargets) {
  EXPECT_EQ(Get("/targets").status, 404);
  const Observation observation(
      server_.get(),
      {.refresh = {}, .alive = {}, .ready = {}, .targets = [] { return R"([{"targets":[]}])"; }});
  const RawHttpAnswer answer = Get("/targets");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.headers.at("content-type"), "application/json");
  EXPECT_EQ(answer.body, R"([{"targets":[]}])");
}

TEST_F(ObservationServerTest, OtherPathsAndMethodsAreRefused) {
  EXPECT_EQ(Get("/").status, 404);
  EXPECT_EQ(Get("/metrics/").status, 404);
  RawHttpClient client(server_->port());
  EXPECT_EQ(client.Ask("POST /metrics HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n").status,
            405);
}

// What a source refers to may be destroyed as soon as its observation has ended.
TEST_F(ObservationServerTest, NoFunctionOfASourceRunsAfterItsObservation) {
  std::atomic<bool> stop = false;
  std::thread scraper([&] {
    while (!stop) Get("/metrics");
  });
  for (int i = 0; i < 50; ++i) {
    std::atomic<bool> live = true;
    {
      const Observation observation(
          server_.get(), {.refresh = [&](MetricSet&) { EXPECT_TRUE(live); },
                          .alive = [&] { return live ? absl::OkStatus() : absl::UnknownError(""); },
                          .ready = {},
                          .targets = {}});
      std::this_thread::yield();
    }
    live = false;
  }
  stop = true;
  scraper.join();
  EXPECT_THAT(Get("/readyz").body, HasSubstr("ending"));
}

TEST_F(ObservationServerTest, TheReachableAddressNeverNamesAWildcard) {
  EXPECT_EQ(server_->ReachableAddress("10.0.0.1:7"), server_->address());
  auto wide = ObservationServer::Start("0.0.0.0:0", "a-program", &metrics_);
  ASSERT_TRUE(wide.ok()) << wide.status();
  EXPECT_EQ((*wide)->ReachableAddress("10.0.0.1:7"), absl::StrCat("10.0.0.1:", (*wide)->port()));
  EXPECT_EQ((*wide)->ReachableAddress("host"), absl::StrCat("host:", (*wide)->port()));
  EXPECT_EQ((*wide)->ReachableAddress(""), absl::StrCat("127.0.0.1:", (*wide)->port()));
}

TEST(ObservationServer, AnAddressInUseIsAnError) {
  MetricSet metrics(MetricPrograms::kWorkers);
  EXPECT_EQ(ObservationServer::Start("nowhere", "p", &metrics).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(ObservationServerTest, APageNeedsASourceAndMayLoadOnlyItsOwnFiles) {
  for (const char* path : {"/", "/status.css", "/status.js", "/status.json"}) {
    EXPECT_EQ(Get(path).status, 404) << path;
  }
  const Observation observation(
      server_.get(), {.refresh = {}, .alive = {}, .ready = {}, .targets = {}, .status = [] {
                        return "{\"ready\":true}";
                      }});
  const RawHttpAnswer page = Get("/");
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.headers.at("content-type"), "text/html; charset=utf-8");
  const std::string& policy = page.headers.at("content-security-policy");
  EXPECT_THAT(policy, HasSubstr("default-src 'none'"));
  EXPECT_THAT(policy, HasSubstr("script-src 'self'"));
  EXPECT_THAT(policy, ::testing::Not(HasSubstr("unsafe")));
  EXPECT_EQ(page.headers.at("x-content-type-options"), "nosniff");
  EXPECT_THAT(page.body, HasSubstr("<title>Baton</title>"));
  EXPECT_EQ(Get("/status.js").headers.at("content-type"), "text/javascript; charset=utf-8");
  EXPECT_EQ(Get("/status.css").headers.at("content-type"), "text/css; charset=utf-8");
  const RawHttpAnswer json = Get("/status.json");
  EXPECT_EQ(json.headers.at("content-type"), "application/json");
  EXPECT_EQ(json.body, "{\"ready\":true}");
  EXPECT_EQ(Get("/status.html").status, 404);
}

}  // namespace
}  // namespace baton
