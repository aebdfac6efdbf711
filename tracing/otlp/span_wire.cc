#include "tracing/otlp/span_wire.h"

#include <algorithm>
#include <type_traits>
#include <variant>
#include <vector>

#include "metrics/metric_labels.h"
#include "text/utf8.h"

namespace baton {
namespace {

constexpr char kScope[] = "baton";
constexpr int64_t kNanoseconds = 1000;  // in a microsecond

void AppendBytes(uint64_t value, std::string& out) {
  for (int shift = 56; shift >= 0; shift -= 8) out.push_back(static_cast<char>(value >> shift));
}
std::string IdBytes(uint64_t id) {
  std::string out;
  AppendBytes(id, out);
  return out;
}
std::string IdBytes(const TraceId& id) {
  std::string out;
  AppendBytes(id.high, out);
  AppendBytes(id.low, out);
  return out;
}

void SetText(const std::string& text, otlp::AnyValue& out) {
  out.set_string_value(ReplaceInvalidUtf8(text));
}

void SetValue(const SpanValue& value, otlp::AnyValue& out) {
  std::visit(
      [&](const auto& one) {
        using Type = std::decay_t<decltype(one)>;
        if constexpr (std::is_same_v<Type, bool>) {
          out.set_bool_value(one);
        } else if constexpr (std::is_same_v<Type, int64_t>) {
          out.set_int_value(one);
        } else if constexpr (std::is_same_v<Type, double>) {
          out.set_double_value(one);
        } else if constexpr (std::is_same_v<Type, std::string>) {
          SetText(one, out);
        } else {
          for (const std::string& text : one)
            SetText(text, *out.mutable_array_value()->add_values());
        }
      },
      value);
}

void AddText(std::string_view key, const std::string& text, otlp::Resource& out) {
  otlp::KeyValue& attribute = *out.add_attributes();
  attribute.set_key(std::string(key));
  SetText(text, *attribute.mutable_value());
}

void ToWire(const Span& span, int64_t unix_offset_us, otlp::Span& out) {
  out.set_trace_id(IdBytes(span.context.trace));
  out.set_span_id(IdBytes(span.context.span));
  if (span.parent != 0) out.set_parent_span_id(IdBytes(span.parent));
  out.set_name(ReplaceInvalidUtf8(span.name));
  out.set_kind(span.kind == SpanKind::kServer ? otlp::Span::SPAN_KIND_SERVER
                                              : otlp::Span::SPAN_KIND_INTERNAL);
  const auto nanoseconds = [unix_offset_us](int64_t us) {
    return static_cast<uint64_t>(std::max<int64_t>(0, us + unix_offset_us)) * kNanoseconds;
  };
  out.set_start_time_unix_nano(nanoseconds(span.begin_us));
  out.set_end_time_unix_nano(nanoseconds(std::max(span.begin_us, span.end_us)));
  for (const SpanAttribute& attribute : span.attributes) {
    otlp::KeyValue& shown = *out.add_attributes();
    shown.set_key(std::string(attribute.key));
    SetValue(attribute.value, *shown.mutable_value());
  }
  if (span.code == absl::StatusCode::kOk) return;
  out.mutable_status()->set_code(otlp::Status::STATUS_CODE_ERROR);
  otlp::KeyValue& error = *out.add_attributes();
  error.set_key("error.type");
  error.mutable_value()->set_string_value(
      std::string(kStatusCodeNames[static_cast<size_t>(LabelOf(span.code))]));
}

}  // namespace

otlp::ExportTraceServiceRequest SpansToWire(std::span<const Span> spans,
                                            const SpanResource& resource, int64_t unix_offset_us) {
  otlp::ExportTraceServiceRequest request;
  otlp::ResourceSpans& out = *request.add_resource_spans();
  AddText("service.name", resource.service, *out.mutable_resource());
  AddText("service.instance.id", resource.instance, *out.mutable_resource());
  AddText("service.version", resource.version, *out.mutable_resource());
  otlp::ScopeSpans& scope = *out.add_scope_spans();
  scope.mutable_scope()->set_name(kScope);
  scope.mutable_scope()->set_version(resource.version);
  for (const Span& span : spans) ToWire(span, unix_offset_us, *scope.add_spans());
  return request;
}

}  // namespace baton
