// Reads the messages of a request: roles, and content that is a string or an array of text parts.
//
// Thread safety: pure function.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "absl/status/statusor.h"
#include "requests/ignored_fields.h"
#include "requests/json_text.h"
#include "text/chat_message.h"

namespace baton {

// Joins text parts with line breaks. Content that is null is empty. InvalidArgument names a part of
// another type. An unknown member is a fault if `ignored` is null. Otherwise it is added there,
// unless it would change the answer: tool calls and audio are faults.
absl::StatusOr<std::vector<ChatMessage>> ReadMessages(const JsonPlace& place,
                                                      const nlohmann::json& value,
                                                      IgnoredFields* ignored);

}  // namespace baton
