#include "router/client_prompt.h"

#include <ctime>

#include "common/status_macros.h"

namespace baton {
namespace {

std::tm LocalTime() {
  const std::time_t now = std::time(nullptr);
  std::tm out = {};
  localtime_r(&now, &out);
  return out;
}

absl::StatusOr<EncodedPrompt> EncodeInput(const ServedModel& model, const ClientRequest& request,
                                          const ChunkForm& form) {
  if (request.prompt) return model.encoder().EncodePrompt(*request.prompt, form);
  if (request.messages) {
    return EncodeMessages(model, *request.messages, request.add_generation_prompt, form);
  }
  if (request.parts) return model.encoder().EncodeParts(*request.parts, form.options);
  if (request.prompt_token_ids) {
    return EncodedPrompt{.tokens = *request.prompt_token_ids, .chunked = std::nullopt};
  }
  return absl::InvalidArgumentError(
      "one of prompt, prompt_token_ids, messages and parts must be set");
}

}  // namespace

RequestLimits LimitsFor(const ServedModel& model, int64_t max_prompt_bytes) {
  return {.max_prompt_bytes = max_prompt_bytes,
          .context_length = model.description().context_length,
          .vocabulary = model.tokenizer().vocab_size(),
          .longest_token_bytes = model.tokenizer().longest_token_bytes()};
}

absl::StatusOr<EncodedPrompt> EncodeMessages(const ServedModel& model,
                                             std::span<const ChatMessage> messages,
                                             bool add_generation_prompt, const ChunkForm& form) {
  return model.encoder().EncodeMessages(messages, add_generation_prompt, LocalTime(), form);
}

absl::StatusOr<EncodedPrompt> EncodePrompt(const ServedModel& model, const RequestLimits& limits,
                                           std::string_view chunk_separator,
                                           const ClientRequest& request) {
  RETURN_IF_ERROR(CheckRequest(request, limits, chunk_separator));
  const ChunkForm form = {
      .separator = request.chunk_separator ? *request.chunk_separator : chunk_separator,
      .options = request.chunk_options};
  ASSIGN_OR_RETURN(EncodedPrompt prompt, EncodeInput(model, request, form));
  RETURN_IF_ERROR(
      prompt.chunked
          ? CheckChunkedPrompt(*prompt.chunked, limits.context_length, limits.vocabulary)
          : CheckPromptTokens(static_cast<int64_t>(prompt.tokens.size()), limits.context_length));
  return prompt;
}

}  // namespace baton
