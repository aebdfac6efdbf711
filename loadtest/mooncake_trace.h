// Reads traces in Mooncake's format (github.com/kvcache-ai/Mooncake): one JSON object a line,
//   {"timestamp": ms, "input_length": tokens, "output_length": tokens, "hash_ids": [ids]}
// An id names a block of 512 prompt tokens together with all tokens before it.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "loadtest/traced_request.h"

namespace baton {

inline constexpr int32_t kMooncakeBlockTokens = 512;

// Parses an untrusted line. InvalidArgument names the line, the field, the value and the limit.
// An output_length of 0 becomes 1, because every answer has a token.
absl::StatusOr<TracedRequest> ParseMooncakeLine(std::string_view line, int64_t number);

}  // namespace baton
