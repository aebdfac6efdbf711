#include "text/prompt_encoder.h"

#include <optional>

#include "common/status_macros.h"

namespace baton {
namespace {

std::string TextOf(const Tokenizer& tokenizer, std::optional<TokenId> id) {
  return id ? std::string(tokenizer.TokenBytes(*id)) : std::string();
}

}  // namespace

PromptEncoder::PromptEncoder(const Tokenizer* tokenizer, const std::string& chat_template)
    : tokenizer_(tokenizer), chat_template_(ChatTemplate::Parse(chat_template)) {}

absl::StatusOr<std::vector<TokenId>> PromptEncoder::EncodeMessages(
    std::span<const ChatMessage> messages, bool add_generation_prompt, const std::tm& now) const {
  if (!chat_template_.ok()) return chat_template_.status();
  RenderOptions options;
  options.add_generation_prompt = add_generation_prompt;
  options.bos_token = TextOf(*tokenizer_, tokenizer_->bos());
  options.eos_token = TextOf(*tokenizer_, tokenizer_->eos());
  options.now = now;
  ASSIGN_OR_RETURN(const std::vector<TextSegment> segments,
                   chat_template_->Render(messages, options));
  return tokenizer_->EncodeSegments(segments, {.add_bos_and_eos = false});
}

}  // namespace baton
