// A sink that keeps all spans, for tests.
//
// Thread safety: belongs to one thread.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tracing/tracer.h"

namespace baton {

class RecordedSpans final : public SpanSink {
 public:
  void Add(Span span) override { spans.push_back(std::move(span)); }

  // Returns a tracer that records everything here. Its ids count from 1.
  Tracer TracerOf(double share = 1) {
    return {share, [this] { return ++last_id_; }, this};
  }
  // Returns null if there is no span with this name.
  const Span* Find(std::string_view name) const {
    const auto found = std::find_if(spans.begin(), spans.end(),
                                    [&](const Span& span) { return span.name == name; });
    return found == spans.end() ? nullptr : &*found;
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const Span& span : spans) names.push_back(span.name);
    return names;
  }

  std::vector<Span> spans;

 private:
  uint64_t last_id_ = 0;
};

// Returns the value of an attribute; its alternative is absent if there is none of that type.
template <typename Value>
const Value* ValueOf(const Span& span, std::string_view key) {
  for (const SpanAttribute& attribute : span.attributes) {
    if (attribute.key == key) return std::get_if<Value>(&attribute.value);
  }
  return nullptr;
}
inline int64_t NumberOf(const Span& span, std::string_view key) {
  const int64_t* const value = ValueOf<int64_t>(span, key);
  return value == nullptr ? -1 : *value;
}
inline std::string TextOf(const Span& span, std::string_view key) {
  const std::string* const value = ValueOf<std::string>(span, key);
  return value == nullptr ? "" : *value;
}

}  // namespace baton
