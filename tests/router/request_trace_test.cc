#include "router/request_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tracing/recorded_spans.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr char kClient[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
constexpr char kUnsampled[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
constexpr char kText[] = "a secret prompt";

ClientRequest Chat() {
  ClientRequest request;
  ChatMessage& message = request.messages.emplace().emplace_back();
  message.role = "user";
  message.content = kText;
  request.n = 2;
  request.sampling.max_tokens = 30;
  request.sampling.temperature = 0.5;
  request.sampling.stop = {kText};
  request.tenant = kText;
  request.session_id = kText;
  return request;
}

Route RouteTo(const std::string& decode, const std::string& prefill = "") {
  Route route;
  route.plan = {.decode = WorkerNumber(1), .prefill = std::nullopt};
  route.plan.first_token_us = 5000;
  route.decode_id = decode;
  route.prefill_id = prefill;
  return route;
}

class RequestTraceTest : public ::testing::Test {
 protected:
  std::unique_ptr<RequestTrace> Begin(std::string_view parent = "") {
    return RequestTrace::Begin(&tracer_, parent, 100);
  }

  RecordedSpans recorded_;
  const Tracer tracer_ = recorded_.TracerOf();
};

TEST_F(RequestTraceTest, HasTheRequestAndItsParts) {
  const auto trace = Begin();
  trace->Describe(Chat(), Endpoint::kGenerate, "req-1", "model", 77);
  trace->Tokenized(150);
  trace->Routed(RouteTo("d", "p"), 160);
  trace->Reserved(190);
  trace->TokensArrived(400);
  trace->TokensArrived(500);
  trace->ChoiceFinished("stop");
  trace->ChoiceFinished("length");
  trace->Ended(absl::OkStatus(), 700,
               {.prompt_tokens = 12, .cached_tokens = 4, .output_tokens = 9});
  ASSERT_THAT(recorded_.Names(), ElementsAre("tokenize", "route", "chat model"));
  const Span& request = recorded_.spans[2];
  EXPECT_EQ(request.parent, 0u);
  EXPECT_EQ(request.kind, SpanKind::kServer);
  EXPECT_EQ(request.begin_us, 100);
  EXPECT_EQ(request.end_us, 700);
  EXPECT_EQ(TextOf(request, "gen_ai.operation.name"), "chat");
  EXPECT_EQ(TextOf(request, "gen_ai.request.model"), "model");
  EXPECT_EQ(TextOf(request, "gen_ai.response.id"), "req-1");
  EXPECT_EQ(NumberOf(request, "gen_ai.request.max_tokens"), 30);
  EXPECT_EQ(NumberOf(request, "gen_ai.request.seed"), 77);
  EXPECT_EQ(NumberOf(request, "gen_ai.request.choice.count"), 2);
  EXPECT_EQ(*ValueOf<double>(request, "gen_ai.request.temperature"), 0.5);
  EXPECT_EQ(NumberOf(request, "gen_ai.usage.input_tokens"), 12);
  EXPECT_EQ(NumberOf(request, "gen_ai.usage.output_tokens"), 9);
  EXPECT_EQ(NumberOf(request, "gen_ai.usage.cache_read.input_tokens"), 4);
  EXPECT_EQ(NumberOf(request, "baton.first_token_us"), 300);
  EXPECT_THAT(*ValueOf<std::vector<std::string>>(request, "gen_ai.response.finish_reasons"),
              ElementsAre("stop", "length"));
  const Span& tokenize = recorded_.spans[0];
  EXPECT_EQ(tokenize.begin_us, 100);
  EXPECT_EQ(tokenize.end_us, 150);
  const Span& route = recorded_.spans[1];
  EXPECT_EQ(route.begin_us, 150);
  EXPECT_EQ(route.end_us, 190);
  EXPECT_EQ(TextOf(route, "baton.decode_worker"), "d");
  EXPECT_EQ(TextOf(route, "baton.prefill_worker"), "p");
  for (const Span& part : {tokenize, route}) {
    EXPECT_EQ(part.parent, request.context.span);
    EXPECT_EQ(part.context.trace, request.context.trace);
  }
  EXPECT_EQ(ParseTraceParent(trace->ForWorkers()), request.context);
}

TEST_F(RequestTraceTest, HasNoText) {
  const auto trace = Begin();
  trace->Describe(Chat(), Endpoint::kChatCompletions, "req-1", "model", 1);
  trace->Ended(absl::InternalError(kText), 700, {});
  for (const Span& span : recorded_.spans) {
    EXPECT_EQ(span.name.find(kText), std::string::npos);
    for (const SpanAttribute& attribute : span.attributes) {
      if (const auto* text = std::get_if<std::string>(&attribute.value)) {
        EXPECT_EQ(text->find(kText), std::string::npos) << attribute.key;
      }
    }
  }
}

TEST_F(RequestTraceTest, ContinuesTheClientsTrace) {
  const auto trace = Begin(kClient);
  trace->Ended(absl::OkStatus(), 700, {});
  const TraceContext client = *ParseTraceParent(kClient);
  ASSERT_EQ(recorded_.spans.size(), 1u);
  EXPECT_EQ(recorded_.spans[0].context.trace, client.trace);
  EXPECT_EQ(recorded_.spans[0].parent, client.span);
  const std::optional<TraceContext> workers = ParseTraceParent(trace->ForWorkers());
  EXPECT_EQ(workers->trace, client.trace);
  EXPECT_EQ(workers->span, recorded_.spans[0].context.span);
}

TEST_F(RequestTraceTest, RecordsNothingOfATraceThatIsNotSampledAndTellsTheWorkersSo) {
  const auto trace = Begin(kUnsampled);
  trace->Describe(Chat(), Endpoint::kGenerate, "req-1", "model", 1);
  trace->Tokenized(150);
  trace->Routed(RouteTo("d"), 160);
  trace->Reserved(170);
  trace->Pulled(160, 170, 3, "s", absl::OkStatus());
  trace->TokensArrived(400);
  trace->ChoiceFinished("stop");
  trace->Ended(absl::OkStatus(), 700, {});
  EXPECT_THAT(recorded_.spans, IsEmpty());
  EXPECT_FALSE(ParseTraceParent(trace->ForWorkers())->sampled);
}

TEST_F(RequestTraceTest, EachRouteIsASpan) {
  const auto trace = Begin();
  trace->Tokenized(150);
  trace->Routed(RouteTo("d1"), 160);
  trace->TokensArrived(400);
  trace->Routed(RouteTo("d2"), 900);
  trace->Reserved(950);
  trace->Ended(absl::UnavailableError("lost"), 1000, {.resumes = 1});
  ASSERT_THAT(recorded_.Names(), ElementsAre("tokenize", "route", "route", "request"));
  EXPECT_EQ(TextOf(recorded_.spans[1], "baton.decode_worker"), "d1");
  EXPECT_EQ(recorded_.spans[1].end_us, 160);
  EXPECT_EQ(TextOf(recorded_.spans[2], "baton.decode_worker"), "d2");
  EXPECT_EQ(recorded_.spans[2].begin_us, 400) << "the last that the lost worker sent";
  EXPECT_EQ(recorded_.spans[2].end_us, 950);
  EXPECT_EQ(recorded_.spans[3].code, absl::StatusCode::kUnavailable);
  EXPECT_EQ(NumberOf(recorded_.spans[3], "baton.resumes"), 1);
}

TEST_F(RequestTraceTest, APullIsAPart) {
  const auto trace = Begin();
  trace->Pulled(160, 260, 48, "source", absl::UnavailableError("gone"));
  ASSERT_EQ(recorded_.spans.size(), 1u);
  EXPECT_EQ(recorded_.spans[0].name, "pull");
  EXPECT_EQ(recorded_.spans[0].code, absl::StatusCode::kUnavailable);
  EXPECT_EQ(NumberOf(recorded_.spans[0], "baton.pulled_tokens"), 48);
}

TEST(RequestTrace, WithoutATracerTheClientsSpanGoesToTheWorkers) {
  EXPECT_EQ(RequestTrace::Begin(nullptr, "", 1), nullptr);
  EXPECT_EQ(RequestTrace::Begin(nullptr, "nonsense", 1), nullptr);
  const auto trace = RequestTrace::Begin(nullptr, kClient, 1);
  ASSERT_NE(trace, nullptr);
  EXPECT_EQ(trace->ForWorkers(), kClient);
  trace->Tokenized(2);
  trace->Routed(RouteTo("d"), 3);
  trace->Ended(absl::OkStatus(), 4, {});
}

}  // namespace
}  // namespace baton
