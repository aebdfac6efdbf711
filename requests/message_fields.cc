#include "requests/message_fields.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/printable_text.h"
#include "common/status_macros.h"
#include "requests/json_values.h"

namespace baton {
namespace {

using Json = nlohmann::json;

// Members that change the answer. Clients send them empty in a conversation that does not use them.
constexpr const char* kUnsupportedMembers[] = {"audio", "function_call", "tool_calls"};

bool IsEmpty(const Json& value) {
  return value.is_null() || ((value.is_array() || value.is_object()) && value.empty());
}

absl::Status TakeUnknown(const JsonPlace& place, IgnoredFields* ignored) {
  if (ignored == nullptr) {
    return place.FaultAtKey(absl::StrCat("\"", place.Name(), "\" is not known"));
  }
  ignored->Add(place);
  return absl::OkStatus();
}

absl::Status TakeUnknownMember(const JsonPlace& place, const std::string& name, const Json& value,
                               IgnoredFields* ignored) {
  const bool unsupported = std::find(std::begin(kUnsupportedMembers), std::end(kUnsupportedMembers),
                                     name) != std::end(kUnsupportedMembers);
  if (ignored == nullptr || !unsupported) return TakeUnknown(place, ignored);
  if (IsEmpty(value)) return absl::OkStatus();
  return place.FaultOf("is not supported; leave it out");
}

// Returns the text of a part such as {"type": "text", "text": "…"}.
absl::StatusOr<std::string> ToTextPart(const JsonPlace& place, const Json& part,
                                       IgnoredFields* ignored) {
  if (!part.is_object()) {
    return place.FaultOf("must be an object, {\"type\": \"text\", \"text\": string}");
  }
  const Json* const type = FindField(part, "type");
  if (type == nullptr) return place.FaultOf("has no \"type\"; it must be \"text\"");
  const JsonPlace type_place = place.Member("type");
  ASSIGN_OR_RETURN(const std::string name, ToText(type_place, *type));
  if (name != "text") {
    return type_place.FaultOf(
        absl::StrCat("is \"", Printable(name, 64), "\"; only \"text\" is supported"));
  }
  for (const auto& [key, value] : part.items()) {
    if (key != "type" && key != "text") RETURN_IF_ERROR(TakeUnknown(place.Member(key), ignored));
  }
  const Json* const text = FindField(part, "text");
  if (text == nullptr) return place.FaultOf("has no \"text\"");
  return ToText(place.Member("text"), *text);
}

absl::StatusOr<std::string> ToContent(const JsonPlace& place, const Json& value,
                                      IgnoredFields* ignored) {
  if (value.is_null()) return "";
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return place.FaultOf("must be a string or an array of text parts");
  std::string content;
  for (size_t i = 0; i < value.size(); ++i) {
    ASSIGN_OR_RETURN(const std::string text, ToTextPart(place.Element(i), value[i], ignored));
    absl::StrAppend(&content, i == 0 ? "" : "\n", text);
  }
  return content;
}

absl::StatusOr<ChatMessage> ToMessage(const JsonPlace& place, const Json& value,
                                      IgnoredFields* ignored) {
  if (!value.is_object()) return place.FaultOf("must be an object");
  ChatMessage message;
  for (const auto& [key, part] : value.items()) {
    const JsonPlace part_place = place.Member(key);
    if (key == "role") {
      ASSIGN_OR_RETURN(message.role, ToText(part_place, part));
    } else if (key == "content") {
      ASSIGN_OR_RETURN(message.content, ToContent(part_place, part, ignored));
    } else if (key == "chunks") {
      if (part.is_null()) continue;
      ASSIGN_OR_RETURN(message.chunks, ToChunks(part_place, part));
    } else {
      RETURN_IF_ERROR(TakeUnknownMember(part_place, key, part, ignored));
    }
  }
  return message;
}

}  // namespace

absl::StatusOr<std::vector<ChatMessage>> ReadMessages(const JsonPlace& place, const Json& value,
                                                      IgnoredFields* ignored) {
  if (!value.is_array()) return place.FaultOf("must be an array of messages");
  std::vector<ChatMessage> messages;
  for (size_t i = 0; i < value.size(); ++i) {
    ASSIGN_OR_RETURN(ChatMessage message, ToMessage(place.Element(i), value[i], ignored));
    messages.push_back(std::move(message));
  }
  return messages;
}

}  // namespace baton
