#include "text/prompt_split.h"

#include <cstdint>
#include <string>
#include <utility>

#include "common/status_macros.h"
#include "common/str_cat.h"
#include "text/utf8.h"

namespace baton {
namespace {

constexpr size_t kNotFound = std::string_view::npos;

absl::Status CheckSeparator(std::string_view separator) {
  RETURN_IF_ERROR(CheckChunkSeparator(separator));
  const size_t valid = ValidUtf8Prefix(separator);
  if (valid == separator.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat("chunk_separator is not valid UTF-8 at byte ", valid, " of ", separator.size()));
}

int64_t CountOf(std::string_view separator, std::string_view text) {
  int64_t count = 0;
  for (size_t at = text.find(separator); at != kNotFound;
       at = text.find(separator, at + separator.size())) {
    ++count;
  }
  return count;
}

}  // namespace

absl::StatusOr<std::optional<ChunkedText>> SplitPrompt(std::string_view text,
                                                       std::string_view separator) {
  if (separator.empty()) return std::nullopt;
  RETURN_IF_ERROR(CheckSeparator(separator));
  const int64_t separators = CountOf(separator, text);
  if (separators == 0) return std::nullopt;
  // Counts before it stores: a text of nothing but separators would need a hundred times its bytes.
  RETURN_IF_ERROR(CheckChunkCount(separators - 1));
  ChunkedText out;
  size_t end = text.find(separator);
  out.system = std::string(text.substr(0, end));
  for (int64_t i = 1; i < separators; ++i) {
    const size_t begin = end + separator.size();
    end = text.find(separator, begin);
    out.chunks.emplace_back(std::string(text.substr(begin, end - begin)));
  }
  out.question = std::string(text.substr(end + separator.size()));
  RETURN_IF_ERROR(CheckPartsNotEmpty(out));
  return out;
}

absl::StatusOr<std::optional<MessageParts>> SplitMessages(std::span<const ChatMessage> messages,
                                                          std::string_view separator) {
  std::optional<size_t> carrier;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].chunks.empty()) continue;
    if (carrier) {
      return absl::InvalidArgumentError(StrCat("messages[", *carrier, "] and messages[", i,
                                               "] have chunks; at most 1 message may have them"));
    }
    carrier = i;
  }
  if (carrier) {
    const ChatMessage& message = messages[*carrier];
    RETURN_IF_ERROR(CheckChunkCount(static_cast<int64_t>(message.chunks.size())));
    MessageParts out = {
        .message = *carrier,
        .parts = {.system = std::string(), .chunks = message.chunks, .question = message.content}};
    RETURN_IF_ERROR(CheckPartsNotEmpty(out.parts));
    return out;
  }
  for (size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].role != "user") continue;
    ASSIGN_OR_RETURN(std::optional<ChunkedText> parts, SplitPrompt(messages[i].content, separator));
    if (parts) return MessageParts{.message = i, .parts = *std::move(parts)};
  }
  return std::nullopt;
}

}  // namespace baton
