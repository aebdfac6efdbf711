#include "engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <optional>
#include <thread>

#include "tests/engine/tiny_engine.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

absl::Status PrefillLocally(Engine& engine, uint64_t transfer_id) {
  std::promise<absl::Status> answer;
  engine.PrefillLocally(transfer_id, engine.epoch(),
                        [&answer](absl::Status status) { answer.set_value(std::move(status)); });
  return answer.get_future().get();
}

TEST(Engine, RefusesMoreStepsInFlightThanTheDeviceTakes) {
  EngineOptions options = TinyOptions();
  options.steps_in_flight = 2;
  const absl::Status refused = Engine::Create(options).status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("steps-in-flight is 2"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("takes at most 1"));
}

TEST(Engine, ShutsDownWithStepsInFlight) {
  EngineOptions options = TinyOptions();
  options.device = "cpu-async";
  options.steps_in_flight = 2;
  auto engine = MakeEngine(options);
  auto sink = std::make_shared<WaitingSink>();
  engine->Generate(TinyRequest(20, 60, 0), sink);
  engine.reset();
  const SinkRecord record = sink->WaitForEnd();
  EXPECT_TRUE(record.ended());
}

TEST(Engine, CancelEndsARequestAndFreesItsBlocks) {
  const auto engine = MakeEngine(TinyOptions());
  HoldingSink holding;
  const RequestHandle handle = engine->Generate(TinyRequest(20, 450, 1), holding.sink());
  holding.WaitUntilHeld();
  engine->Cancel(handle);
  holding.GoOn();
  const SinkRecord record = holding.sink()->WaitForEnd();
  ASSERT_TRUE(record.error.has_value());
  EXPECT_EQ(record.error->code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(engine->Inspect().status.cache.blocks.owned, 0);
  engine->Cancel(handle);
  engine->Cancel(987654);
  EXPECT_EQ(engine->Inspect().status.failures, 1);
}

TEST(Engine, ADeadlineIsKeptWhileTheEngineIsIdle) {
  EngineOptions options = TinyOptions();
  options.transfer_listen = "127.0.0.1:0";
  const auto engine = MakeEngine(options);
  GenerateRequest request = TinyRequest(20, 10, 1);
  request.remote_prefill = true;
  request.timeout_ms = 20;
  EXPECT_EQ(Ask(*engine, request).error->code(), absl::StatusCode::kDeadlineExceeded);
}

TEST(Engine, RefusalsReachTheSink) {
  const auto engine = MakeEngine(TinyOptions());
  EXPECT_THAT(Ask(*engine, TinyRequest(512, 1, 0)).error->message(), HasSubstr("context of 512"));
  EXPECT_FALSE(Ask(*engine, TinyRequest(0, 1, 0)).finish.has_value());
  GenerateRequest request = TinyRequest(3, 1, 0);
  request.remote_prefill = true;
  EXPECT_EQ(Ask(*engine, request).error->code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(PrefillLocally(*engine, 1).code(), absl::StatusCode::kNotFound);
}

TEST(Engine, InspectShowsRunningRequests) {
  EngineOptions options = TinyOptions();
  options.transfer_listen = "127.0.0.1:0";
  const auto engine = MakeEngine(options);
  GenerateRequest request = TinyRequest(40, 10, 1);
  request.remote_prefill = true;
  auto sink = std::make_shared<WaitingSink>();
  const RequestHandle handle = engine->Generate(request, sink);
  const SinkRecord record =
      sink->WaitFor([](const SinkRecord& seen) { return seen.ticket.has_value(); });
  const EngineInspection inspection = engine->Inspect();
  ASSERT_EQ(inspection.sequences.size(), 1u);
  EXPECT_EQ(inspection.sequences[0].sequence_id, handle);
  EXPECT_EQ(inspection.sequences[0].phase, "waiting for KV");
  EXPECT_EQ(inspection.sequences[0].tokens, 40);
  EXPECT_EQ(inspection.sequences[0].blocks.size(), 3u);
  EXPECT_EQ(inspection.status.waiting_for_kv, 1);
  EXPECT_EQ(inspection.status.active_transfers, 1);
  EXPECT_EQ(inspection.status.cache.blocks.in_transfer, 3);
  EXPECT_THAT(inspection.op_path, HasSubstr("paged attention, f16"));
  EXPECT_FALSE(inspection.trace.empty());
  ASSERT_TRUE(PrefillLocally(*engine, record.ticket->transfer_id).ok());
  EXPECT_EQ(sink->WaitForEnd().tokens.size(), 10u);
  EXPECT_EQ(engine->Inspect().status.cache.blocks.in_transfer, 0);
  EXPECT_THAT(engine->StartupReport(), HasSubstr("100 blocks of 16 tokens"));
}

TEST(Engine, OptionsShowTheResolvedAutomaticValues) {
  EngineOptions options = TinyOptions();
  options.threads = 0;
  options.instruction_set = "auto";
  options.kv_blocks = 0;
  options.kv_cache_mib = 0;
  options.context_length = 0;
  options.paged = false;
  const auto engine = *Engine::Create(options);
  const EngineOptions& effective = engine->options();
  EXPECT_GE(effective.threads, 1);
  EXPECT_NE(effective.instruction_set, "auto");
  EXPECT_EQ(effective.numerics, "r1");
  EXPECT_GT(effective.kv_blocks, 0);
  EXPECT_GT(effective.kv_cache_mib, 0);
  EXPECT_EQ(effective.context_length, engine->model_info().spec.context_length);
  EXPECT_FALSE(effective.prefix_cache) << "no prefix cache without paging";
  EXPECT_FALSE(engine->Status().prefix_cache);
  EXPECT_EQ(effective.model, options.model);
  EXPECT_THAT(engine->StartupReport(), HasSubstr("from " + options.model));
}

TEST(Engine, DestructionCancelsRunningWaitingAndQueuedRequests) {
  EngineOptions options = TinyOptions();
  options.transfer_listen = "127.0.0.1:0";
  options.max_running = 2;
  std::vector<std::shared_ptr<WaitingSink>> sinks;
  {
    const auto engine = MakeEngine(options);
    for (uint64_t i = 0; i < 20; ++i) {
      GenerateRequest request = TinyRequest(20, 450, i);
      request.remote_prefill = i % 5 == 0;
      // Each token takes so long that no answer ends before the engine is destroyed.
      sinks.push_back(std::make_shared<WaitingSink>(
          [] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }));
      engine->Generate(request, sinks.back());
    }
  }
  for (const auto& sink : sinks) {
    const SinkRecord record = sink->WaitFor([](const SinkRecord&) { return true; });
    ASSERT_TRUE(record.error.has_value()) << "ended before the engine did";
    EXPECT_TRUE(absl::IsCancelled(*record.error) || absl::IsResourceExhausted(*record.error));
  }
}

TEST(Engine, ASinkMayCallTheEngine) {
  const auto engine = MakeEngine(TinyOptions());
  int64_t steps = 0;
  int64_t published_steps = 0;
  std::atomic<int> answers = 0;
  auto sink = std::make_shared<WaitingSink>([&] {
    steps = engine->Inspect().status.steps;
    published_steps = engine->Status().steps;
    engine->PrefillLocally(1, engine->epoch(), [&](const absl::Status&) { ++answers; });
  });
  engine->Generate(TinyRequest(20, 5, 1), sink);
  EXPECT_TRUE(sink->WaitForEnd().finish.has_value());
  EXPECT_EQ(engine->Inspect().status.steps, 5);
  EXPECT_EQ(steps, 5);
  EXPECT_EQ(published_steps, 4);  // the status before the step that calls the sink
  EXPECT_EQ(answers, 5);
}

TEST(Engine, StatusAndHandOversDoNotWaitForALongStep) {
  const auto engine = MakeEngine(TinyOptions());
  EXPECT_EQ(engine->Status().block_size, 16);  // published before the first step
  std::promise<void> stuck;
  std::promise<void> go_on;
  bool first = true;
  auto sink = std::make_shared<WaitingSink>([&] {
    if (!std::exchange(first, false)) return;
    stuck.set_value();
    go_on.get_future().wait();
  });
  engine->Generate(TinyRequest(20, 5, 1), sink);
  stuck.get_future().wait();  // the step now blocks until go_on
  std::promise<absl::Status> handed_over;
  std::future<absl::Status> hand_over = handed_over.get_future();
  std::future<EngineStatus> asked = std::async(std::launch::async, [&] {
    engine->PrefillLocally(1, engine->epoch(), [&handed_over](absl::Status status) {
      handed_over.set_value(std::move(status));
    });
    return engine->Status();
  });
  const std::future_status came = asked.wait_for(std::chrono::minutes(1));
  EXPECT_EQ(hand_over.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  go_on.set_value();
  ASSERT_EQ(came, std::future_status::ready);
  const EngineStatus status = asked.get();
  EXPECT_EQ(status.requests, 1);
  EXPECT_EQ(status.waiting + status.running, 1);
  EXPECT_EQ(status.steps, 0);
  EXPECT_EQ(hand_over.get().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(sink->WaitForEnd().finish.has_value());
}

// Calls the engine from another thread when its request is cancelled.
class AskingSink final : public RequestSink {
 public:
  explicit AskingSink(std::function<void()> ask) : ask_(std::move(ask)) {}
  void OnTicket(const TransferTicket&) override {}
  void OnTokens(TokenOutput) override {}
  void OnFinish(FinishInfo) override {}
  void OnError(absl::Status) override { std::thread(ask_).join(); }

 private:
  const std::function<void()> ask_;
};

TEST(Engine, QuestionsDuringShutdownAreAnswered) {
  EngineOptions options = TinyOptions();
  options.transfer_listen = "127.0.0.1:0";
  auto engine = MakeEngine(options);
  Engine* const stopping = engine.get();
  std::optional<EngineInspection> inspection;
  std::optional<EngineStatus> status;
  std::optional<absl::Status> hand_over;
  GenerateRequest request = TinyRequest(20, 10, 1);
  request.remote_prefill = true;  // the KV never comes
  engine->Generate(request, std::make_shared<AskingSink>([&] {
                     inspection = stopping->Inspect();
                     status = stopping->Status();
                     stopping->PrefillLocally(1, stopping->epoch(), [&](absl::Status answer) {
                       hand_over = std::move(answer);
                     });
                   }));
  engine.reset();
  ASSERT_TRUE(inspection.has_value() && status.has_value() && hand_over.has_value());
  EXPECT_TRUE(inspection->op_path.empty());
  EXPECT_EQ(status->block_size, 16);
  EXPECT_EQ(hand_over->code(), absl::StatusCode::kUnavailable);
}

TEST(Engine, AFullInboxRefusesAndStillTakesCancels) {
  const auto engine = MakeEngine(TinyOptions());
  std::promise<void> stuck;
  std::promise<void> go_on;
  bool first = true;
  auto blocks = std::make_shared<WaitingSink>([&] {
    if (!std::exchange(first, false)) return;
    stuck.set_value();
    go_on.get_future().wait();
  });
  const RequestHandle handle = engine->Generate(TinyRequest(20, 450, 1), blocks);
  stuck.get_future().wait();
  const GenerateRequest invalid;  // refused without work
  std::vector<std::shared_ptr<WaitingSink>> sinks;
  for (int i = 0; i < (1 << 16) + 1; ++i) {
    sinks.push_back(std::make_shared<WaitingSink>());
    engine->Generate(invalid, sinks.back());
  }
  const SinkRecord refused = sinks.back()->WaitFor([](const SinkRecord&) { return true; });
  ASSERT_TRUE(refused.error.has_value());
  EXPECT_EQ(refused.error->code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.error->message(), HasSubstr("65536"));
  auto prefill = std::make_shared<PrefillRecord>();
  engine->Prefill({}, std::make_shared<RecordingPrefillSink>(prefill));
  EXPECT_EQ(prefill->done->status().code(), absl::StatusCode::kResourceExhausted);
  engine->Cancel(handle);
  go_on.set_value();
  EXPECT_EQ(blocks->WaitForEnd().error->code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(sinks[0]->WaitForEnd().error->code(), absl::StatusCode::kInvalidArgument);
}

TEST(Engine, CreationErrorsNameTheCause) {
  const auto error = [](const std::function<void(EngineOptions&)>& change) {
    EngineOptions options = TinyOptions();
    change(options);
    return std::string(Engine::Create(options).status().message());
  };
  EXPECT_THAT(error([](EngineOptions& o) { o.model = "/nowhere/x.gguf"; }),
              HasSubstr("/nowhere/x.gguf"));
  EXPECT_THAT(error([](EngineOptions& o) { o.block_size = 12; }), HasSubstr("12"));
  EXPECT_THAT(error([](EngineOptions& o) { o.threads = 1000; }), HasSubstr("1000"));
  EXPECT_THAT(error([](EngineOptions& o) { o.instruction_set = "sse"; }), HasSubstr("\"sse\""));
  EXPECT_THAT(error([](EngineOptions& o) { o.numerics = "r9"; }), HasSubstr("\"r9\""));
  EXPECT_THAT(error([](EngineOptions& o) { o.device = "tpu"; }),
              HasSubstr("device is \"tpu\"; must be cpu, cpu-async, cuda or cuda:N"));
  EXPECT_FALSE(error([](EngineOptions& o) { o.kv_blocks = -1; }).empty());
  EXPECT_THAT(error([](EngineOptions& o) { o.transfer_listen = "nonsense"; }),
              HasSubstr("nonsense"));
}

TEST(Engine, AWrongTransferAddressIsNotBlamedOnSharedMemory) {
  EngineOptions options = TinyOptions();
  options.transfer_shm = true;
  options.transfer_listen = "nonsense";
  ::testing::internal::CaptureStderr();
  EXPECT_FALSE(Engine::Create(options).ok());
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::Not(HasSubstr("no shared memory")));
}

}  // namespace
}  // namespace baton
