// The mock server and the HTTP target, over real sockets. No test asserts how long anything takes.
#include "cli/mock_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <utility>

#ifdef BATON_GRPC
#include "cli/http_target_client.h"
#endif
#include "cli/load_driver.h"
#include "common/clock.h"
#include "loadtest/target_address.h"

namespace baton {
namespace {

#ifdef BATON_GRPC
using ::testing::HasSubstr;

class MockedTarget : public ::testing::Test {
 protected:
  void Start(const MockTimes& times, const OpenAiOptions& requests = {}) {
    auto server = MockServer::Start("127.0.0.1:0", times);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    target_ = std::make_unique<HttpTarget>(
        HttpTargetOptions{.address = *ParseTargetAddress("http://" + server_->address() + "/v1"),
                          .timeout_ms = 60'000,
                          .requests = requests});
  }

  DriverResult Run(const WorkloadOptions& workload_options, int64_t requests) {
    const auto workload = MakeWorkload(workload_options, {});
    LoadRunOptions options;
    options.arrivals = {.kind = ArrivalKind::kPoisson, .rate_per_s = 500, .seed = 1};
    options.max_requests = requests;
    LoadRun run(options, **workload);
    return LoadDriver(*target_, clock_).Run(run, {});
  }

  const SystemClock clock_;
  std::unique_ptr<MockServer> server_;
  std::unique_ptr<HttpTarget> target_;  // before the server: it keeps connections
};

TEST_F(MockedTarget, EveryAnswerIsWholeAndHasItsTokens) {
  Start({.ttft_us = 2'000, .itl_us = 500});
  const auto model = target_->Describe(10'000);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->name, "mock");
  EXPECT_FALSE(model->is_baton);
  for (const WorkloadKind kind : {WorkloadKind::kSynthetic, WorkloadKind::kChat}) {
    const DriverResult result =
        Run({.kind = kind, .prompt_tokens = 20, .output_tokens = 5, .turns = 2, .think_s = 0}, 60);
    ASSERT_EQ(result.records.size(), 60u);
    for (const RequestRecord& record : result.records) {
      EXPECT_EQ(record.outcome, RequestOutcome::kWhole) << record.error << record.error_message;
      EXPECT_EQ(record.output_tokens, 5);
      EXPECT_GE(record.prompt_tokens, 20);
      EXPECT_GE(record.first_content_us - record.sent_us, 2'000) << "the role is no content";
      EXPECT_EQ(record.cached_tokens, -1);
    }
  }
}

TEST_F(MockedTarget, ARefusedRequestHasTheServersReason) {
  Start({});
  LoadRequest request;
  request.pieces = {{.role = PieceRole::kPrompt, .tokens = {1}, .answer = {}}};
  request.output_tokens = 1 << 21;  // beyond the mock's limit
  class Sink final : public AnswerSink {
   public:
    void OnContent(std::string_view, std::span<const TokenId>, int32_t) override {}
    void OnLastText(std::string_view) override {}
    void OnEnd(AnswerEnd end) override { ended.set_value(std::move(end)); }
    std::promise<AnswerEnd> ended;
  };
  const auto sink = std::make_shared<Sink>();
  auto ended = sink->ended.get_future();
  target_->Send(request, sink);
  const AnswerEnd end = ended.get();
  EXPECT_EQ(end.outcome, RequestOutcome::kFailed);
  EXPECT_EQ(end.error, "400 invalid_request_error");
  EXPECT_THAT(end.error_message, HasSubstr("max_tokens must be 1 to"));
}

TEST_F(MockedTarget, CancelledAndLateAnswersSaySo) {
  Start({.ttft_us = 600'000'000, .itl_us = 0});
  const auto workload = MakeWorkload({}, {});
  LoadRunOptions options;
  options.arrivals.rate_per_s = 500;
  LoadRun run(options, **workload);
  DriverOptions driver_options;
  driver_options.objectives.ttft_ms = 1;
  driver_options.max_bad = 3;
  const DriverResult result = LoadDriver(*target_, clock_).Run(run, driver_options);
  ASSERT_GT(result.records.size(), 3u);
  for (const RequestRecord& record : result.records) EXPECT_EQ(record.error, kHttpCancelled);
  HttpTarget hasty({.address = *ParseTargetAddress("http://" + server_->address() + "/v1"),
                    .timeout_ms = 1,
                    .requests = {}});
  LoadRunOptions one = options;
  one.max_requests = 1;
  LoadRun late(one, **workload);
  const DriverResult timed_out = LoadDriver(hasty, clock_).Run(late, {});
  ASSERT_EQ(timed_out.records.size(), 1u);
  EXPECT_EQ(timed_out.records[0].error, kHttpTimeout);
}

TEST_F(MockedTarget, ALostServerIsNamed) {
  Start({});
  const std::string address = server_->address();
  server_.reset();
  EXPECT_THAT(std::string(target_->Describe(5'000).status().message()),
              HasSubstr("no server answers at " + address));
  const DriverResult result = Run({}, 3);
  ASSERT_EQ(result.records.size(), 3u);
  for (const RequestRecord& record : result.records) {
    EXPECT_EQ(record.outcome, RequestOutcome::kFailed);
    EXPECT_EQ(record.error, "connection lost");
  }
}
#endif

TEST(MockServer, AnAddressThatCannotBeBoundIsAnError) {
  EXPECT_FALSE(MockServer::Start("not an address", {}).ok());
}

}  // namespace
}  // namespace baton
