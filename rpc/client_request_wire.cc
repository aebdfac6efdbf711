#include "rpc/client_request_wire.h"

#include <string>
#include <utility>
#include <variant>

#include "common/status_macros.h"
#include "common/str_cat.h"
#include "rpc/prompt_chunks_wire.h"
#include "rpc/sampling_wire.h"
#include "text/utf8.h"

namespace baton {
namespace {

int64_t BytesOf(const v1::Messages& wire) {
  int64_t bytes = 0;
  for (const v1::ChatMessage& message : wire.messages()) {
    bytes += static_cast<int64_t>(message.role().size() + message.content().size());
  }
  return bytes;
}

absl::Status TakeInput(const v1::GenerateRequest& wire, const RequestLimits& limits,
                       ClientRequest& out) {
  switch (wire.input_case()) {
    case v1::GenerateRequest::kPrompt:
      RETURN_IF_ERROR(CheckCount("the prompt", static_cast<int64_t>(wire.prompt().size()),
                                 limits.max_prompt_bytes, "bytes"));
      out.prompt = wire.prompt();
      return absl::OkStatus();
    case v1::GenerateRequest::kPromptTokenIds:
      RETURN_IF_ERROR(
          CheckCount("prompt_token_ids", wire.prompt_token_ids().ids_size(), kMaxPromptTokenIds));
      out.prompt_token_ids = TokenIdsFromWire(wire.prompt_token_ids());
      return absl::OkStatus();
    case v1::GenerateRequest::kMessages: {
      ASSIGN_OR_RETURN(out.messages, MessagesFromWire(wire.messages(), limits));
      out.add_generation_prompt = AddsGenerationPrompt(wire.messages());
      return absl::OkStatus();
    }
    case v1::GenerateRequest::kParts:
      RETURN_IF_ERROR(CheckParts(PartSizesOf(wire), 0, limits));
      out.parts = PartsFromWire(wire.parts());
      return absl::OkStatus();
    case v1::GenerateRequest::INPUT_NOT_SET:
      return absl::OkStatus();  // a fault, but only after those of the fields (EncodePrompt)
  }
  return absl::OkStatus();
}

absl::Status CheckText(std::string_view field, std::string_view text) {
  if (ValidUtf8Prefix(text) == text.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat(field, " is not valid UTF-8 at byte ", ValidUtf8Prefix(text), " of ", text.size()));
}

absl::Status CheckPart(std::string_view field, const PromptPart& part) {
  const auto* text = std::get_if<std::string>(&part);
  return text == nullptr ? absl::OkStatus() : CheckText(field, *text);
}

absl::Status CheckChunks(std::string_view field, const std::vector<PromptPart>& chunks) {
  for (size_t i = 0; i < chunks.size(); ++i) {
    RETURN_IF_ERROR(CheckPart(StrCat(field, "[", i, "]"), chunks[i]));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<ChatMessage>> MessagesFromWire(const v1::Messages& wire,
                                                          const RequestLimits& limits) {
  RETURN_IF_ERROR(CheckMessages(wire.messages_size(), BytesOf(wire), limits));
  RETURN_IF_ERROR(CheckParts(PartSizesOf(wire), BytesOf(wire), limits));
  std::vector<ChatMessage> messages;
  messages.reserve(static_cast<size_t>(wire.messages_size()));
  for (const v1::ChatMessage& message : wire.messages()) {
    messages.push_back({.role = message.role(),
                        .content = message.content(),
                        .name = std::nullopt,
                        .chunks = PartListFromWire(message.chunks())});
  }
  return messages;
}

bool AddsGenerationPrompt(const v1::Messages& wire) {
  return !wire.has_add_generation_prompt() || wire.add_generation_prompt();
}

absl::StatusOr<ClientRequest> ClientRequestFromWire(const v1::GenerateRequest& wire,
                                                    const RequestLimits& limits) {
  ClientRequest out;
  ASSIGN_OR_RETURN(out.sampling, SamplingFromWire(wire.sampling()));
  ASSIGN_OR_RETURN(out.chunk_options, ChunkOptionsFromWire(wire));
  out.request_id = wire.request_id();
  out.tenant = wire.tenant();
  out.cache_salt = wire.cache_salt();
  out.session_id = wire.session_id();
  out.trace_parent = wire.trace_parent();
  out.priority = wire.priority();
  if (wire.has_n()) out.n = wire.n();
  if (wire.has_chunk_separator()) out.chunk_separator = wire.chunk_separator();
  out.return_prompt_token_ids = wire.include_prompt_token_ids();
  RETURN_IF_ERROR(TakeInput(wire, limits, out));
  return out;
}

v1::GenerateRequest ClientRequestToWire(const ClientRequest& request) {
  v1::GenerateRequest out;
  out.set_request_id(request.request_id);
  if (request.prompt) out.set_prompt(*request.prompt);
  if (request.prompt_token_ids) {
    out.mutable_prompt_token_ids()->mutable_ids()->Add(request.prompt_token_ids->begin(),
                                                       request.prompt_token_ids->end());
  }
  if (request.messages) {
    v1::Messages* const messages = out.mutable_messages();
    for (const ChatMessage& message : *request.messages) {
      v1::ChatMessage* const wire = messages->add_messages();
      wire->set_role(message.role);
      wire->set_content(message.content);
      for (const PromptPart& chunk : message.chunks) *wire->add_chunks() = PartToWire(chunk);
    }
    if (!request.add_generation_prompt) messages->set_add_generation_prompt(false);
  }
  if (request.parts) *out.mutable_parts() = PartsToWire(*request.parts);
  ChunkOptionsToWire(request.chunk_options, out);
  if (request.chunk_separator) out.set_chunk_separator(*request.chunk_separator);
  *out.mutable_sampling() = SamplingToWire(request.sampling);
  out.set_tenant(request.tenant);
  out.set_cache_salt(request.cache_salt);
  out.set_session_id(request.session_id);
  out.set_trace_parent(request.trace_parent);
  out.set_priority(request.priority);
  out.set_n(request.n);
  if (request.return_prompt_token_ids) out.set_include_prompt_token_ids(true);
  return out;
}

absl::Status CheckUtf8(const ClientRequest& request) {
  if (request.prompt) RETURN_IF_ERROR(CheckText("prompt", *request.prompt));
  if (request.chunk_separator) {
    RETURN_IF_ERROR(CheckText("chunk_separator", *request.chunk_separator));
  }
  if (request.parts) {
    RETURN_IF_ERROR(CheckPart("system", request.parts->system));
    RETURN_IF_ERROR(CheckChunks("chunks", request.parts->chunks));
    RETURN_IF_ERROR(CheckPart("question", request.parts->question));
  }
  if (request.messages) {
    for (size_t i = 0; i < request.messages->size(); ++i) {
      const ChatMessage& message = (*request.messages)[i];
      RETURN_IF_ERROR(CheckText(StrCat("messages[", i, "].role"), message.role));
      RETURN_IF_ERROR(CheckText(StrCat("messages[", i, "].content"), message.content));
      RETURN_IF_ERROR(CheckChunks(StrCat("messages[", i, "].chunks"), message.chunks));
    }
  }
  for (const std::string& stop : request.sampling.stop) RETURN_IF_ERROR(CheckText("stop", stop));
  return absl::OkStatus();
}

}  // namespace baton
