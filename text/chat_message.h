// A conversation as a request brings it, and the check that it is one.
//
// Thread safety: plain data; pure.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "common/request_bounds.h"

namespace baton {

struct ChatMessage {
  std::string role;
  std::string content;
  std::optional<std::string> name;  // absent from the template's variables when absent here
};

struct ChatLimits {
  size_t max_messages = kMaxMessages;
  size_t max_content_bytes = size_t{4} << 20;  // of one message
  size_t max_total_bytes = size_t{8} << 20;    // contents, roles and names of all
  size_t max_name_bytes = 256;
};

// At least one message; roles of system, user, assistant, tool, developer; valid UTF-8; sizes
// within the limits. Any order of roles is let through: templates refuse what their model cannot
// take, and a last message of the assistant is rendered as the template says. InvalidArgument names
// the message (from 0), the value and the limit.
absl::Status ValidateMessages(std::span<const ChatMessage> messages, const ChatLimits& limits);

}  // namespace baton
