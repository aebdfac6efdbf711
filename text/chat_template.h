// A model's chat template: turns a conversation into the text that the model was trained on.
//
// Renders what jinja2 renders with trim_blocks and lstrip_blocks, as Hugging Face does for chat
// templates, and tells for every byte whether the template wrote it or the request did. A template
// comes with a model file and is not trusted with resources (JinjaLimits); a message is not trusted
// with control tokens (TextSegment::trusted is false for it).
//
// Invariants: immutable after Parse; the segments of a render, joined, are the prompt; neighbouring
// segments differ in trust and none is empty.
// Thread safety: Render may be called from many threads at once.
#pragma once

#include <ctime>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "text/chat_message.h"
#include "text/jinja/limits.h"
#include "text/text_segment.h"

namespace baton {

struct RenderOptions {
  bool add_generation_prompt = true;
  // The text of the model's begin and end tokens; trusted. Empty where the model has none.
  std::string bos_token;
  std::string eos_token;
  // More variables for the template, such as enable_thinking. Untrusted. They do not replace
  // messages, add_generation_prompt, bos_token, eos_token, tools and documents.
  std::map<std::string, std::variant<bool, int64_t, std::string>> variables;
  // The time that strftime_now prints; a template that calls it without one fails.
  std::optional<std::tm> now;
};

class ChatTemplate {
 public:
  // The template may be absent or empty: a model without one cannot chat (FailedPrecondition).
  // Other errors start with "chat template line N: "; Unimplemented names a construct of jinja2
  // that is not supported.
  static absl::StatusOr<ChatTemplate> Parse(std::optional<std::string_view> source,
                                            const JinjaLimits& jinja_limits = {},
                                            const ChatLimits& chat_limits = {});

  // InvalidArgument for messages that ValidateMessages refuses, variables that are not UTF-8, and
  // where the template fails, as with raise_exception. `tools` and `documents` are none.
  absl::StatusOr<std::vector<TextSegment>> Render(std::span<const ChatMessage> messages,
                                                  const RenderOptions& options) const;

  const std::string& source() const;

 private:
  struct State;

  explicit ChatTemplate(std::shared_ptr<const State> state) : state_(std::move(state)) {}

  std::shared_ptr<const State> state_;
};

}  // namespace baton
