// Turns a client's request into the prompt that the model sees.
//
// Thread safety: pure functions, apart from the time: templates can print the date.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/request_check.h"
#include "requests/client_request.h"
#include "router/served_model.h"
#include "text/prompt_encoder.h"

namespace baton {

RequestLimits LimitsFor(const ServedModel& model, int64_t max_prompt_bytes);

absl::StatusOr<EncodedPrompt> EncodeMessages(const ServedModel& model,
                                             std::span<const ChatMessage> messages,
                                             bool add_generation_prompt,
                                             const ChunkForm& form = {});

// `chunk_separator`: of requests that set none. InvalidArgument names the field, its value and the
// limit. Also checks a request that was accepted before the model was known.
absl::StatusOr<EncodedPrompt> EncodePrompt(const ServedModel& model, const RequestLimits& limits,
                                           std::string_view chunk_separator,
                                           const ClientRequest& request);

}  // namespace baton
