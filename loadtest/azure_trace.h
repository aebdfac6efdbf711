// Reads the LLM inference traces of Azure (github.com/Azure/AzurePublicDataset), CSV:
//   TIMESTAMP,ContextTokens,GeneratedTokens
//   2023-11-16 18:17:03.9799600,4808,10
// Timestamps may have a fraction of up to nine digits and a zone ("+00:00", "Z"). They have no hash
// ids, so every prompt is new.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "loadtest/traced_request.h"

namespace baton {

// Checks the first line of the file. InvalidArgument names the line expected.
absl::Status CheckAzureHeader(std::string_view line);

// Parses an untrusted line. InvalidArgument names the line, the field, the value and the limit.
// 0 generated tokens become 1, because every answer has a token.
absl::StatusOr<TracedRequest> ParseAzureLine(std::string_view line, int64_t number);

}  // namespace baton
