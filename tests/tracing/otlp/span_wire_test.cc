#include "tracing/otlp/span_wire.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace baton {
namespace {

std::map<std::string, otlp::AnyValue> AttributesOf(const otlp::Span& span) {
  std::map<std::string, otlp::AnyValue> out;
  for (const otlp::KeyValue& attribute : span.attributes()) {
    out[attribute.key()] = attribute.value();
  }
  return out;
}

TEST(SpanWire, HasTheIdsTheTimesAndTheAttributes) {
  Span span = {.context = {.trace = {.high = 0x0102030405060708, .low = 0x090a0b0c0d0e0f10},
                           .span = 0x1112131415161718,
                           .sampled = true},
               .parent = 0x2122232425262728,
               .name = "prefill",
               .kind = SpanKind::kServer,
               .begin_us = 1000,
               .end_us = 3000};
  span.Add("flag", true);
  span.Add("number", int64_t{7});
  span.Add("share", 0.5);
  span.Add("text", std::string("a\xff"));
  span.Add("texts", std::vector<std::string>{"b", "c"});
  const std::vector<Span> spans = {span};
  const auto request =
      SpansToWire(spans, {.service = "baton-router", .instance = "r1", .version = "9"}, 5'000'000);
  ASSERT_EQ(request.resource_spans_size(), 1);
  const otlp::ResourceSpans& resource = request.resource_spans(0);
  EXPECT_EQ(resource.resource().attributes(0).key(), "service.name");
  EXPECT_EQ(resource.resource().attributes(0).value().string_value(), "baton-router");
  ASSERT_EQ(resource.scope_spans_size(), 1);
  ASSERT_EQ(resource.scope_spans(0).spans_size(), 1);
  const otlp::Span& sent = resource.scope_spans(0).spans(0);
  EXPECT_EQ(sent.trace_id(), "\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10");
  EXPECT_EQ(sent.span_id(), "\x11\x12\x13\x14\x15\x16\x17\x18");
  EXPECT_EQ(sent.parent_span_id(), "\x21\x22\x23\x24\x25\x26\x27\x28");
  EXPECT_EQ(sent.name(), "prefill");
  EXPECT_EQ(sent.kind(), otlp::Span::SPAN_KIND_SERVER);
  EXPECT_EQ(sent.start_time_unix_nano(), 5'001'000'000u);
  EXPECT_EQ(sent.end_time_unix_nano(), 5'003'000'000u);
  EXPECT_FALSE(sent.has_status());
  auto attributes = AttributesOf(sent);
  EXPECT_TRUE(attributes["flag"].bool_value());
  EXPECT_EQ(attributes["number"].int_value(), 7);
  EXPECT_EQ(attributes["share"].double_value(), 0.5);
  EXPECT_EQ(attributes["text"].string_value(), "a\xEF\xBF\xBD");
  ASSERT_EQ(attributes["texts"].array_value().values_size(), 2);
  EXPECT_EQ(attributes["texts"].array_value().values(1).string_value(), "c");
}

TEST(SpanWire, ARootHasNoParentAndAnErrorHasItsCode) {
  const std::vector<Span> spans = {{.context = {},
                                    .name = "it",
                                    .begin_us = 9,
                                    .end_us = 3,
                                    .code = absl::StatusCode::kCancelled}};
  const auto request = SpansToWire(spans, {}, 0);
  const otlp::Span& sent = request.resource_spans(0).scope_spans(0).spans(0);
  EXPECT_EQ(sent.parent_span_id(), "");
  EXPECT_EQ(sent.kind(), otlp::Span::SPAN_KIND_INTERNAL);
  EXPECT_EQ(sent.end_time_unix_nano(), sent.start_time_unix_nano()) << "no span ends early";
  EXPECT_EQ(sent.status().code(), otlp::Status::STATUS_CODE_ERROR);
  EXPECT_EQ(AttributesOf(sent)["error.type"].string_value(), "cancelled");
}

}  // namespace
}  // namespace baton
