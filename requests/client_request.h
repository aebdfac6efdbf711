// What a client asks for. Every edge fills this struct and calls the same check, so a bad value
// gets the same message everywhere: jobs and flags of `baton`, HTTP bodies, and protobuf.
//
// requests/request_fields.h reads it from JSON, rpc/client_request_wire.h from protobuf.
//
// Thread safety: plain data; pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "common/prompt_chunks.h"
#include "common/request_check.h"
#include "common/sampling_params.h"
#include "common/token_id.h"
#include "text/chat_message.h"

namespace baton {

struct ClientRequest {
  std::string request_id;  // empty: the server makes one
  // One of these is set.
  std::optional<std::string> prompt;
  std::optional<std::vector<TokenId>> prompt_token_ids;
  std::optional<std::vector<ChatMessage>> messages;
  std::optional<ChunkedText> parts;
  // Of messages: the prompt ends with the header of an assistant message.
  bool add_generation_prompt = true;
  ChunkOptions chunk_options;                  // of a prompt that has parts
  std::optional<std::string> chunk_separator;  // empty: off; absent: the router's, or off
  int32_t n = 1;                               // choices, 1–kMaxChoices
  SamplingParams sampling;
  std::string tenant;
  std::string cache_salt;
  std::string session_id;  // for the router; one process ignores it
  std::string trace_parent = {};  // the client's span (W3C traceparent); ignored unless it is valid
  int32_t priority = 0;    // −100–100
  bool return_prompt_token_ids = false;
};

// Number of inputs that are set.
int InputsOf(const ClientRequest& request);
// Bytes of the input: of text, and four for each token id.
size_t InputBytes(const ClientRequest& request);

// Checks everything that can be checked before the prompt is tokenised (CheckRequest in
// common/request_check.h). `chunk_separator`: of requests that set none. Does not check the number
// of inputs: each edge has its own names for them.
absl::Status CheckRequest(const ClientRequest& request, const RequestLimits& limits,
                          std::string_view chunk_separator = "");

}  // namespace baton
