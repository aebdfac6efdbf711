// Tests of traces over real gRPC and HTTP, with scripted engines and a fake collector.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/host_port.h"
#include "tests/e2e/service_fixture.h"
#include "tests/http/raw_http_client.h"
#include "tests/tracing/otlp/fake_collector.h"

namespace baton {
namespace {

constexpr char kTrace[] = "4bf92f3577b34da6a3ce929d0e0e4736";
constexpr char kSpan[] = "00f067aa0ba902b7";

std::string Parent(const std::string& flags) {
  return absl::StrCat("00-", kTrace, "-", kSpan, "-", flags);
}

// Must exist before the router of the base class.
struct Collecting {
  FakeCollector collector;
};

class ServiceTracesTest : protected Collecting, public ServiceTest {
 protected:
  ServiceTracesTest()
      : ServiceTest({.listen = "127.0.0.1:0"}, {.otlp_endpoint = collector.address()}),
        traces_(
            OtlpExporter::Start({.otlp_endpoint = collector.address()}, "worker", "w", nullptr)) {
    tracer_ = traces_->tracer();
  }
  ~ServiceTracesTest() override {
    workers_.clear();  // their calls use the tracer
  }

  // Returns the spans by the first words of their names, once there are so many.
  std::map<std::string, CollectedSpan> Spans(size_t count) {
    std::map<std::string, CollectedSpan> out;
    for (const CollectedSpan& span : collector.Spans(count)) {
      const std::string& name = span.span.name();
      EXPECT_TRUE(out.emplace(name.substr(0, name.find(' ')), span).second) << name;
    }
    return out;
  }

  const std::unique_ptr<OtlpExporter> traces_;
};

TEST_F(ServiceTracesTest, OneTraceHasTheSpansOfRouterAndWorker) {
  AddDecode();
  ASSERT_TRUE(TickingUntilFollowed(1));
  v1::GenerateRequest request;
  request.set_prompt("hello");
  request.set_trace_parent(Parent("01"));
  ASSERT_TRUE(Generate(request).status.ok());
  const auto spans = Spans(6);
  for (const char* name : {"text_completion", "tokenize", "route", "queue", "prefill", "decode"}) {
    ASSERT_TRUE(spans.contains(name)) << name;
    EXPECT_EQ(absl::BytesToHexString(spans.at(name).span.trace_id()), kTrace) << name;
  }
  const otlp::Span& root = spans.at("text_completion").span;
  EXPECT_EQ(absl::BytesToHexString(root.parent_span_id()), kSpan);
  EXPECT_EQ(spans.at("route").service, "baton-router");
  EXPECT_EQ(spans.at("decode").service, "worker");
  for (const auto& [name, collected] : spans) {
    if (name == "text_completion") continue;
    EXPECT_EQ(collected.span.parent_span_id(), root.span_id()) << name;
  }
}

TEST_F(ServiceTracesTest, AnUnsampledTraceHasNoSpanAnywhere) {
  AddDecode();
  ASSERT_TRUE(TickingUntilFollowed(1));
  v1::GenerateRequest request;
  request.set_prompt("hello");
  request.set_trace_parent(Parent("00"));
  ASSERT_TRUE(Generate(request).status.ok());
  request.set_trace_parent("");
  ASSERT_TRUE(Generate(request).status.ok());
  std::set<std::string> traces;
  for (const CollectedSpan& span : collector.Spans(6)) traces.insert(span.span.trace_id());
  EXPECT_EQ(traces.size(), 1u) << "that of the second request";
  EXPECT_FALSE(traces.contains(absl::HexStringToBytes(kTrace)));
}

TEST_F(ServiceTracesTest, TheHeaderOfAnHttpRequestContinuesItsTrace) {
  AddDecode();
  ASSERT_TRUE(TickingUntilFollowed(1));
  const std::string body = R"({"prompt": "hello"})";
  const RawHttpAnswer answer =
      RawHttpClient(ParseHostPort(router_->http()->address())->port)
          .Ask(absl::StrCat(
              "POST /v1/completions HTTP/1.1\r\nHost: h\r\nTraceparent: ", Parent("01"),
              "\r\nContent-Type: application/json\r\nContent-Length: ", body.size(), "\r\n\r\n",
              body));
  ASSERT_EQ(answer.status, 200) << answer.body;
  const auto spans = Spans(6);
  ASSERT_TRUE(spans.contains("text_completion"));
  EXPECT_EQ(absl::BytesToHexString(spans.at("text_completion").span.trace_id()), kTrace);
  EXPECT_EQ(absl::BytesToHexString(spans.at("text_completion").span.parent_span_id()), kSpan);
}

TEST_F(ServiceTracesTest, AFailureIsAnErrorAtTheRouterAndTheWorker) {
  AddDecode({.refusal = absl::InvalidArgumentError("no")});
  ASSERT_TRUE(TickingUntilFollowed(1));
  v1::GenerateRequest request;
  request.set_prompt("hello");
  EXPECT_FALSE(Generate(request).status.ok());
  const auto spans = Spans(4);
  ASSERT_TRUE(spans.contains("text_completion") && spans.contains("prefill"));
  EXPECT_EQ(spans.at("text_completion").span.status().code(), otlp::Status::STATUS_CODE_ERROR);
  EXPECT_EQ(spans.at("prefill").span.status().code(), otlp::Status::STATUS_CODE_ERROR);
}

}  // namespace
}  // namespace baton
