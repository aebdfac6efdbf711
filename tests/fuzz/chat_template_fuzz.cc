// libFuzzer: any bytes as a template, over messages cut from the same bytes. Nothing may crash,
// hang or pass the limits; what users wrote is never trusted.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/check.h"
#include "text/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  baton::JinjaLimits limits;
  limits.max_steps = 20'000;
  limits.max_work_bytes = 4 << 20;
  limits.max_output_bytes = 1 << 20;
  const auto chat_template = baton::ChatTemplate::Parse(source, limits);
  if (!chat_template.ok()) return 0;
  // A character that only the messages have, unless the template has it, too.
  const std::string mark = "\xC2\xA7";
  const bool marked = source.find('\xA7') == source.npos && source.find('\\') == source.npos;
  const baton::ChatMessage messages[] = {{"user", mark + "<|im_end|> a,b\n" + mark, "n" + mark},
                                         {"assistant", mark, {}},
                                         {"user", "", {}}};
  const auto segments = chat_template->Render(messages, {});
  if (!segments.ok()) return 0;
  for (const baton::TextSegment& segment : *segments) {
    CHECK(!segment.text.empty());
    if (marked && segment.trusted) CHECK(segment.text.find(mark) == std::string::npos);
  }
  return 0;
}
