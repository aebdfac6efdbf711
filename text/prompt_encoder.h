// Prompt encoder: turns a request's plain text or conversation into the model's token ids. The
// router and `baton run` share it, so both produce the same ids.
//
// Plain text gets a BOS token if the model file asks for one. Control tokens are not recognised in
// it. A conversation is rendered by the model's chat template, which writes BOS itself, so none is
// added (as Hugging Face's `apply_chat_template` does).
//
// Thread safety: immutable after creation. Many threads may call any member at the same time.
#pragma once

#include <ctime>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "text/chat_message.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace baton {

class PromptEncoder {
 public:
  // `tokenizer` must outlive this object. A missing or unsupported template is not an error here;
  // EncodeMessages reports it.
  PromptEncoder(const Tokenizer* tokenizer, const std::string& chat_template);

  std::vector<TokenId> EncodeText(std::string_view text) const { return tokenizer_->Encode(text); }

  // Returns InvalidArgument if the template or its limits refuse the messages, and
  // FailedPrecondition if the model has no template. Templates that print the date print `now`.
  absl::StatusOr<std::vector<TokenId>> EncodeMessages(std::span<const ChatMessage> messages,
                                                      bool add_generation_prompt,
                                                      const std::tm& now) const;

  // OK if the model has a usable chat template.
  absl::Status chat_status() const { return chat_template_.status(); }

 private:
  const Tokenizer* const tokenizer_;
  const absl::StatusOr<ChatTemplate> chat_template_;
};

}  // namespace baton
