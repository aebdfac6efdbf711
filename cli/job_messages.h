// Reads the messages of a job: roles, and content that is a string or an array of text parts.
//
// Thread safety: pure function.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/json_line.h"
#include "text/chat_message.h"

namespace baton {

// Joins text parts with line breaks. InvalidArgument names a part of another type or an unknown
// member.
absl::StatusOr<std::vector<ChatMessage>> ReadMessages(const JsonPlace& place,
                                                      const nlohmann::json& value);

}  // namespace baton
