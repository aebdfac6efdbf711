// A model's chat template. It turns a conversation into prompt text in the format that the model
// was trained on.
//
// The output equals that of jinja2 with trim_blocks and lstrip_blocks, which Hugging Face uses for
// chat templates. Each byte of the output is marked as written by the template or by the request.
// A template comes with a model file, so its resource use is limited (JinjaLimits). A message may
// not inject control tokens, so its text is untrusted (TextSegment::trusted is false).
//
// Invariants: immutable after Parse. The concatenated segments of a render are the prompt.
// Neighbouring segments differ in trust or mark, and none is empty.
// Thread safety: many threads may call Render at the same time.
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

// Marks a message's content from a byte on, so that the caller finds it in the render.
struct ContentMark {
  size_t message = 0;  // index
  size_t begin = 0;    // byte offset, at most the content's size
};

struct RenderOptions {
  bool add_generation_prompt = true;
  // Text of the model's BOS and EOS tokens; trusted. Empty if the model has none.
  std::string bos_token;
  std::string eos_token;
  // More variables for the template, such as enable_thinking. Untrusted. They cannot override
  // messages, add_generation_prompt, bos_token, eos_token, tools or documents.
  std::map<std::string, std::variant<bool, int64_t, std::string>> variables;
  // The time that strftime_now prints. If absent, a template that calls strftime_now fails.
  std::optional<std::tm> now;
  // The marked bytes keep their mark where the template copies them, as they keep their trust. A
  // value that the template formats, for example by tojson, loses it.
  std::optional<ContentMark> mark;
};

class ChatTemplate {
 public:
  // Returns FailedPrecondition if the template is absent or empty: such a model cannot chat.
  // Other errors start with "chat template line N: ". Unimplemented names a jinja2 construct that
  // Baton does not support.
  static absl::StatusOr<ChatTemplate> Parse(std::optional<std::string_view> source,
                                            const JinjaLimits& jinja_limits = {},
                                            const ChatLimits& chat_limits = {});

  // Does not render the chunks of messages.
  // Returns InvalidArgument if ValidateMessages refuses the messages, if a variable is not valid
  // UTF-8, or if the template fails (for example by raise_exception). The template sees `tools` and
  // `documents` as none.
  absl::StatusOr<std::vector<TextSegment>> Render(std::span<const ChatMessage> messages,
                                                  const RenderOptions& options) const;

  const std::string& source() const;

 private:
  struct State;

  explicit ChatTemplate(std::shared_ptr<const State> state) : state_(std::move(state)) {}

  std::shared_ptr<const State> state_;
};

}  // namespace baton
