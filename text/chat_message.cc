#include "text/chat_message.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "text/utf8.h"

namespace baton {
namespace {

constexpr std::array<std::string_view, 5> kRoles = {"system", "user", "assistant", "tool",
                                                    "developer"};

absl::Status CheckText(size_t index, const char* field, const std::string& text, size_t limit) {
  if (text.size() > limit) {
    return absl::InvalidArgumentError(absl::StrCat("messages[", index, "].", field, " has ",
                                                   text.size(), " bytes; at most ", limit,
                                                   " are allowed"));
  }
  if (const size_t valid = ValidUtf8Prefix(text); valid != text.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("messages[", index, "].", field, " is not valid UTF-8 at byte ", valid));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateMessages(std::span<const ChatMessage> messages, const ChatLimits& limits) {
  if (messages.empty()) return absl::InvalidArgumentError("messages is empty");
  if (messages.size() > limits.max_messages) {
    return absl::InvalidArgumentError(absl::StrCat("messages has ", messages.size(),
                                                   " entries; at most ", limits.max_messages,
                                                   " are allowed"));
  }
  size_t total = 0;
  for (size_t i = 0; i < messages.size(); ++i) {
    const ChatMessage& message = messages[i];
    if (std::find(kRoles.begin(), kRoles.end(), message.role) == kRoles.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("messages[", i, "].role is \"", absl::CHexEscape(message.role.substr(0, 32)),
                       "\"; system, user, assistant, tool and developer are allowed"));
    }
    RETURN_IF_ERROR(CheckText(i, "content", message.content, limits.max_content_bytes));
    if (message.name.has_value()) {
      RETURN_IF_ERROR(CheckText(i, "name", *message.name, limits.max_name_bytes));
    }
    total += message.role.size() + message.content.size() +
             (message.name.has_value() ? message.name->size() : 0);
    if (total > limits.max_total_bytes) {
      return absl::InvalidArgumentError(absl::StrCat("messages[0] to messages[", i, "] have ",
                                                     total, " bytes; at most ",
                                                     limits.max_total_bytes, " are allowed"));
    }
  }
  return absl::OkStatus();
}

}  // namespace baton
