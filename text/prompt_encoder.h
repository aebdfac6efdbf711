// Prompt encoder: turns a request's plain text, conversation or parts into the model's token ids.
// The router and `baton run` share it, so both produce the same ids.
//
// Plain text gets a BOS token if the model file asks for one. Control tokens are not recognised in
// it. A conversation is rendered by the model's chat template, which writes BOS itself, so none is
// added (as Hugging Face's `apply_chat_template` does).
//
// The parts of a chunked prompt are tokenised one by one. Together they get the BOS and EOS tokens
// of one plain text: BOS before a system part that is text, even an empty one, and EOS behind a
// question that is text. In a conversation, the system part is everything that the template writes
// before the content of the message with the chunks, and the question is everything from the
// content on.
//
// Thread safety: immutable after creation. Many threads may call any member at the same time.
#pragma once

#include <ctime>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/prompt_chunks.h"
#include "text/chat_message.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace baton {

// How a request wants its text divided into parts.
struct ChunkForm {
  std::string_view separator;  // prompt_split.h; empty: text is not split
  ChunkOptions options;        // of the chunked prompt, if the text becomes one
};

struct EncodedPrompt {
  std::vector<TokenId> tokens;           // of all parts, in their order
  std::optional<ChunkedPrompt> chunked;  // absent: an ordinary prompt
};

class PromptEncoder {
 public:
  // `tokenizer` must outlive this object. A missing or unsupported template is not an error here;
  // EncodeMessages reports it.
  PromptEncoder(const Tokenizer* tokenizer, const std::string& chat_template);

  std::vector<TokenId> EncodeText(std::string_view text) const { return tokenizer_->Encode(text); }

  // InvalidArgument: as SplitPrompt.
  absl::StatusOr<EncodedPrompt> EncodePrompt(std::string_view text, const ChunkForm& form) const;

  // InvalidArgument: an empty part other than the system part, or too many chunks.
  absl::StatusOr<EncodedPrompt> EncodeParts(const ChunkedText& parts,
                                            const ChunkOptions& options) const;

  // Returns InvalidArgument if the template or its limits refuse the messages, and
  // FailedPrecondition if the model has no template. Templates that print the date print `now`.
  // Of messages with parts, also InvalidArgument as SplitMessages, and if the template does not
  // write the content before which the chunks stand.
  absl::StatusOr<EncodedPrompt> EncodeMessages(std::span<const ChatMessage> messages,
                                               bool add_generation_prompt, const std::tm& now,
                                               const ChunkForm& form = {}) const;

  // OK if the model has a usable chat template.
  absl::Status chat_status() const { return chat_template_.status(); }

 private:
  std::vector<TokenId> EncodePart(const PromptPart& part, EncodeOptions options) const;

  const Tokenizer* const tokenizer_;
  const absl::StatusOr<ChatTemplate> chat_template_;
};

}  // namespace baton
