#include "requests/client_request.h"

#include <variant>

namespace baton {
namespace {

void AddSize(const PromptPart& part, PartSizes& sizes) {
  if (const auto* const text = std::get_if<std::string>(&part)) {
    sizes.bytes += static_cast<int64_t>(text->size());
  } else {
    sizes.token_ids += static_cast<int64_t>(std::get<std::vector<TokenId>>(part).size());
  }
}

void AddSizes(const std::vector<PromptPart>& chunks, PartSizes& sizes) {
  sizes.chunks += static_cast<int64_t>(chunks.size());
  for (const PromptPart& chunk : chunks) AddSize(chunk, sizes);
}

PartSizes SizesOf(const ClientRequest& request) {
  PartSizes sizes;
  if (request.parts) {
    AddSize(request.parts->system, sizes);
    AddSizes(request.parts->chunks, sizes);
    AddSize(request.parts->question, sizes);
  }
  if (request.messages) {
    for (const ChatMessage& message : *request.messages) AddSizes(message.chunks, sizes);
  }
  return sizes;
}

int64_t BytesOf(const std::vector<ChatMessage>& messages) {
  int64_t bytes = 0;
  for (const ChatMessage& message : messages) {
    bytes += static_cast<int64_t>(message.role.size() + message.content.size());
  }
  return bytes;
}

}  // namespace

int InputsOf(const ClientRequest& request) {
  return (request.prompt ? 1 : 0) + (request.prompt_token_ids ? 1 : 0) +
         (request.messages ? 1 : 0) + (request.parts ? 1 : 0);
}

size_t InputBytes(const ClientRequest& request) {
  const PartSizes parts = SizesOf(request);
  int64_t token_ids = parts.token_ids;
  if (request.prompt_token_ids) token_ids += static_cast<int64_t>(request.prompt_token_ids->size());
  size_t bytes =
      static_cast<size_t>(parts.bytes) + static_cast<size_t>(token_ids) * sizeof(TokenId);
  if (request.prompt) bytes += request.prompt->size();
  if (request.messages) bytes += static_cast<size_t>(BytesOf(*request.messages));
  return bytes;
}

absl::Status CheckRequest(const ClientRequest& request, const RequestLimits& limits,
                          std::string_view chunk_separator) {
  RequestFields fields = {.request_id = request.request_id,
                          .session_id = request.session_id,
                          .tenant = request.tenant,
                          .cache_salt = request.cache_salt,
                          .priority = request.priority,
                          .n = request.n,
                          .sampling = request.sampling,
                          .prompt = {},
                          .prompt_token_ids = std::nullopt,
                          .parts = SizesOf(request),
                          .chunk_separator = chunk_separator};
  if (request.prompt) fields.prompt = *request.prompt;
  if (request.messages) {
    fields.messages = static_cast<int64_t>(request.messages->size());
    fields.message_bytes = BytesOf(*request.messages);
  }
  if (request.prompt_token_ids) fields.prompt_token_ids = *request.prompt_token_ids;
  if (request.chunk_separator) fields.chunk_separator = *request.chunk_separator;
  return CheckRequest(fields, limits);
}

}  // namespace baton
