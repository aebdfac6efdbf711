// Messages of a chat request, and their validation.
//
// Thread safety: plain data; pure.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/prompt_chunks.h"
#include "common/request_bounds.h"

namespace baton {

struct ChatMessage {
  std::string role;
  std::string content;
  std::optional<std::string> name;  // if absent, the template sees no `name` key either
  // Prompt chunks, placed before the content (prompt_encoder.h). The template does not see them.
  std::vector<PromptPart> chunks = {};
};

struct ChatLimits {
  size_t max_messages = kMaxMessages;
  size_t max_content_bytes = size_t{4} << 20;  // of one message
  size_t max_total_bytes = size_t{8} << 20;    // contents, roles and names of all
  size_t max_name_bytes = 256;
};

// Checks that:
//   - there is at least one message,
//   - each role is system, user, assistant, tool or developer,
//   - all text is valid UTF-8,
//   - all sizes are within `limits`.
// Roles may come in any order: a template refuses an order that its model does not support, and
// decides how to render a final assistant message. InvalidArgument names the message (counted from
// 0), the value and the limit.
absl::Status ValidateMessages(std::span<const ChatMessage> messages, const ChatLimits& limits);

}  // namespace baton
