#include "text/chat_template.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/parser.h"
#include "text/utf8.h"

namespace baton {
namespace {

absl::Status InTemplate(const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat("chat template ", status.message()));
}

absl::StatusOr<JinjaValue> Text(const char* what, const std::string& text, bool trusted) {
  if (const size_t valid = ValidUtf8Prefix(text); valid != text.size()) {
    return absl::InvalidArgumentError(absl::StrCat(what, " is not valid UTF-8 at byte ", valid));
  }
  return JinjaValue::String(JinjaString(text, trusted));
}

absl::StatusOr<JinjaValue> MessageList(std::span<const ChatMessage> messages,
                                       const std::optional<ContentMark>& mark, JinjaMeter& meter) {
  const auto key = [](std::string_view name) {
    return JinjaValue::String(JinjaString(name, true));
  };
  const auto text = [](const std::string& value) {
    return JinjaValue::String(JinjaString(value, false));
  };
  const JinjaValue role = key("role");
  const JinjaValue content = key("content");
  const JinjaValue name = key("name");
  std::vector<JinjaValue> list;
  list.reserve(messages.size());
  for (size_t i = 0; i < messages.size(); ++i) {
    const ChatMessage& message = messages[i];
    const bool marked = mark.has_value() && mark->message == i;
    JinjaValue shown =
        marked ? JinjaValue::String(JinjaString::MarkedFrom(message.content, mark->begin))
               : text(message.content);
    std::vector<std::pair<JinjaValue, JinjaValue>> entries = {{role, text(message.role)},
                                                              {content, std::move(shown)}};
    if (message.name.has_value()) entries.emplace_back(name, text(*message.name));
    ASSIGN_OR_RETURN(JinjaValue dict, NewDict(std::move(entries), meter));
    list.push_back(std::move(dict));
  }
  return NewList(std::move(list), meter);
}

absl::StatusOr<JinjaInput> InputOf(std::span<const ChatMessage> messages,
                                   const RenderOptions& options, JinjaMeter& meter) {
  JinjaInput input;
  input.now = options.now;
  for (const auto& [name, value] : options.variables) {
    if (const bool* flag = std::get_if<bool>(&value)) {
      input.variables[name] = JinjaValue::Bool(*flag);
    } else if (const int64_t* number = std::get_if<int64_t>(&value)) {
      input.variables[name] = JinjaValue::Int(*number, false);
    } else {
      ASSIGN_OR_RETURN(input.variables[name],
                       Text("a template variable", std::get<std::string>(value), false));
    }
  }
  ASSIGN_OR_RETURN(input.variables["messages"], MessageList(messages, options.mark, meter));
  ASSIGN_OR_RETURN(input.variables["bos_token"], Text("bos_token", options.bos_token, true));
  ASSIGN_OR_RETURN(input.variables["eos_token"], Text("eos_token", options.eos_token, true));
  input.variables["add_generation_prompt"] = JinjaValue::Bool(options.add_generation_prompt);
  input.variables["tools"] = JinjaValue::None();
  input.variables["documents"] = JinjaValue::None();
  return input;
}

}  // namespace

struct ChatTemplate::State {
  std::string source;
  JinjaBlock body;
  JinjaLimits jinja_limits;
  ChatLimits chat_limits;
};

absl::StatusOr<ChatTemplate> ChatTemplate::Parse(std::optional<std::string_view> source,
                                                 const JinjaLimits& jinja_limits,
                                                 const ChatLimits& chat_limits) {
  if (!source.has_value() || source->empty()) {
    return absl::FailedPreconditionError("the model has no chat template");
  }
  absl::StatusOr<JinjaBlock> body = ParseJinja(*source, jinja_limits);
  if (!body.ok()) return InTemplate(body.status());
  return ChatTemplate(std::make_shared<const State>(
      State{std::string(*source), *std::move(body), jinja_limits, chat_limits}));
}

const std::string& ChatTemplate::source() const { return state_->source; }

absl::StatusOr<std::vector<TextSegment>> ChatTemplate::Render(std::span<const ChatMessage> messages,
                                                              const RenderOptions& options) const {
  RETURN_IF_ERROR(ValidateMessages(messages, state_->chat_limits));
  JinjaMeter input_meter(state_->jinja_limits);
  ASSIGN_OR_RETURN(JinjaInput input, InputOf(messages, options, input_meter));
  JinjaEvaluator evaluator(state_->body, state_->jinja_limits, std::move(input));
  const absl::StatusOr<JinjaString> text = evaluator.Render();
  if (!text.ok()) return InTemplate(text.status());
  return text->Segments();
}

}  // namespace baton
