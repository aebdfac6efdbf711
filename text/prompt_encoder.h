// From what a request brings, plain text or a conversation, to the token ids that the model sees:
// one place for the router and for `baton run`, so that both see the same ids.
//
// Plain text gets the model's begin token where its file asks for one, and no special token is
// recognised in it. A conversation is rendered by the model's template, which writes its own begin
// token (as `apply_chat_template` and its tokenizer call do).
//
// Thread safety: immutable after creation; every member may run on many threads.
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
  // `tokenizer` must outlive this. A template that is missing or not supported is an error of
  // EncodeMessages, not of this.
  PromptEncoder(const Tokenizer* tokenizer, const std::string& chat_template);

  std::vector<TokenId> EncodeText(std::string_view text) const { return tokenizer_->Encode(text); }

  // InvalidArgument for messages the template or its limits refuse; FailedPrecondition for a model
  // without a template. `now` is what a template that writes the date prints.
  absl::StatusOr<std::vector<TokenId>> EncodeMessages(std::span<const ChatMessage> messages,
                                                      bool add_generation_prompt,
                                                      const std::tm& now) const;

  // OK when conversations can be encoded.
  absl::Status chat_status() const { return chat_template_.status(); }

 private:
  const Tokenizer* const tokenizer_;
  const absl::StatusOr<ChatTemplate> chat_template_;
};

}  // namespace baton
