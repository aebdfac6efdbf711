#include "text/prompt_encoder.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "common/status_macros.h"
#include "common/str_cat.h"
#include "text/prompt_split.h"

namespace baton {
namespace {

constexpr EncodeOptions kNoBosOrEos = {.add_bos = false, .add_eos = false};

std::string TextOf(const Tokenizer& tokenizer, std::optional<TokenId> id) {
  return id ? std::string(tokenizer.TokenBytes(*id)) : std::string();
}

EncodedPrompt Encoded(ChunkedPrompt prompt) {
  EncodedPrompt out;
  out.tokens = FlatTokens(prompt);
  out.chunked = std::move(prompt);
  return out;
}

// Returns the message with its parts joined for the template: the system part's text, then the
// question. `mark` becomes the place where the question begins. REQUIRES: both parts are text.
ChatMessage WithoutChunks(const ChatMessage& message, const MessageParts& split,
                          ContentMark& mark) {
  const auto& system = std::get<std::string>(split.parts.system);
  ChatMessage out = message;
  out.chunks.clear();
  out.content = system + std::get<std::string>(split.parts.question);
  mark = {.message = split.message, .begin = system.size()};
  return out;
}

}  // namespace

PromptEncoder::PromptEncoder(const Tokenizer* tokenizer, const std::string& chat_template)
    : tokenizer_(tokenizer), chat_template_(ChatTemplate::Parse(chat_template)) {}

std::vector<TokenId> PromptEncoder::EncodePart(const PromptPart& part,
                                               EncodeOptions options) const {
  if (const auto* ids = std::get_if<std::vector<TokenId>>(&part)) return *ids;
  return tokenizer_->Encode(std::get<std::string>(part), options);
}

absl::StatusOr<EncodedPrompt> PromptEncoder::EncodePrompt(std::string_view text,
                                                          const ChunkForm& form) const {
  ASSIGN_OR_RETURN(const std::optional<ChunkedText> parts, SplitPrompt(text, form.separator));
  if (parts) return EncodeParts(*parts, form.options);
  return EncodedPrompt{.tokens = EncodeText(text), .chunked = std::nullopt};
}

absl::StatusOr<EncodedPrompt> PromptEncoder::EncodeParts(const ChunkedText& parts,
                                                         const ChunkOptions& options) const {
  RETURN_IF_ERROR(CheckChunkCount(static_cast<int64_t>(parts.chunks.size())));
  RETURN_IF_ERROR(CheckPartsNotEmpty(parts));
  ChunkedPrompt out;
  out.options = options;
  out.system = EncodePart(parts.system, {.add_bos = true, .add_eos = false});
  for (const PromptPart& chunk : parts.chunks) out.chunks.push_back(EncodePart(chunk, kNoBosOrEos));
  out.question = EncodePart(parts.question, {.add_bos = false, .add_eos = true});
  return Encoded(std::move(out));
}

absl::StatusOr<EncodedPrompt> PromptEncoder::EncodeMessages(std::span<const ChatMessage> messages,
                                                            bool add_generation_prompt,
                                                            const std::tm& now,
                                                            const ChunkForm& form) const {
  if (!chat_template_.ok()) return chat_template_.status();
  ASSIGN_OR_RETURN(const std::optional<MessageParts> split,
                   SplitMessages(messages, form.separator));
  RenderOptions options;
  options.add_generation_prompt = add_generation_prompt;
  options.bos_token = TextOf(*tokenizer_, tokenizer_->bos());
  options.eos_token = TextOf(*tokenizer_, tokenizer_->eos());
  options.now = now;
  std::vector<ChatMessage> plain;  // only with parts
  if (split) {
    plain.assign(messages.begin(), messages.end());
    ChatMessage& carrier = plain[split->message];
    carrier = WithoutChunks(carrier, *split, options.mark.emplace());
    messages = plain;
  }
  ASSIGN_OR_RETURN(const std::vector<TextSegment> segments,
                   chat_template_->Render(messages, options));
  if (!split) {
    return EncodedPrompt{.tokens = tokenizer_->EncodeSegments(segments, kNoBosOrEos),
                         .chunked = std::nullopt};
  }
  const auto question = std::find_if(segments.begin(), segments.end(),
                                     [](const TextSegment& segment) { return segment.marked; });
  if (question == segments.end()) {
    return absl::InvalidArgumentError(
        StrCat("the model's chat template does not write the content of messages[", split->message,
               "], so its chunks have no place"));
  }
  ChunkedPrompt out;
  out.options = form.options;
  out.system = tokenizer_->EncodeSegments({segments.begin(), question}, kNoBosOrEos);
  for (const PromptPart& chunk : split->parts.chunks) {
    out.chunks.push_back(EncodePart(chunk, kNoBosOrEos));
  }
  out.question = tokenizer_->EncodeSegments({question, segments.end()}, kNoBosOrEos);
  return Encoded(std::move(out));
}

}  // namespace baton
