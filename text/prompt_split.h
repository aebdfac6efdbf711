// Splits text with separators into the parts of a chunked prompt.
//
// The text is split from the left, before it is tokenised: `S##A##B##Q` with the separator `##` has
// the system part S, the chunks A and B, and the question Q. With one separator there are no
// chunks. The separators belong to no part. No part is trimmed.
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/prompt_chunks.h"
#include "text/chat_message.h"

namespace baton {

// Returns nothing if `separator` is empty or not in `text`. InvalidArgument: too many chunks, an
// empty part other than the system part, or a separator that is too long or not UTF-8.
absl::StatusOr<std::optional<ChunkedText>> SplitPrompt(std::string_view text,
                                                       std::string_view separator);

// The parts that one message of a conversation carries.
struct MessageParts {
  size_t message = 0;  // index
  // `system` is the text of the message before the first separator, and empty if the message has a
  // list of chunks. What the template writes before this message's content comes before it.
  ChunkedText parts;
};

// Returns the parts of the message that has chunks. If no message has any, returns the parts of the
// first user message with the separator. A list of chunks is never split. Returns nothing if the
// conversation has no parts. InvalidArgument: as SplitPrompt, or two messages have chunks.
absl::StatusOr<std::optional<MessageParts>> SplitMessages(std::span<const ChatMessage> messages,
                                                          std::string_view separator);

}  // namespace baton
