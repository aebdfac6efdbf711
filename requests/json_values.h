// Reads the values of a request from JSON: text, numbers, token ids, and parts of a chunked prompt.
// A value of another type, or out of range, is a fault at its place.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/prompt_chunks.h"
#include "common/token_id.h"
#include "requests/json_text.h"

namespace baton {

// Returns the number of a JSON number such as 16.0, if it has no fraction and is at most 2^53.
std::optional<int64_t> WholeFloat(const nlohmann::json& value);

// Also reads 16.0, which some clients send. A fault of a number that Integer cannot hold names
// `least` to `most`, the range of the field. Other numbers may be outside that range.
template <typename Integer>
absl::StatusOr<Integer> ToInteger(const JsonPlace& place, const nlohmann::json& value,
                                  Integer least = std::numeric_limits<Integer>::min(),
                                  Integer most = std::numeric_limits<Integer>::max()) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (std::in_range<Integer>(number)) return static_cast<Integer>(number);
  } else {
    const std::optional<int64_t> number =
        value.is_number_integer() ? value.get<int64_t>() : WholeFloat(value);
    if (!number) return place.FaultOf("must be a whole number");
    if (std::in_range<Integer>(*number)) return static_cast<Integer>(*number);
  }
  return place.FaultOf(
      absl::StrCat("is ", value.dump(), "; [", least, ", ", most, "] is allowed"));
}

absl::StatusOr<std::string> ToText(const JsonPlace& place, const nlohmann::json& value);
absl::StatusOr<bool> ToBool(const JsonPlace& place, const nlohmann::json& value);

// At most kMaxPromptTokenIds.
absl::StatusOr<std::vector<TokenId>> ToTokenIds(const JsonPlace& place,
                                                const nlohmann::json& value);

// Reads a string or an array of token ids.
absl::StatusOr<PromptPart> ToPromptPart(const JsonPlace& place, const nlohmann::json& value);
// Reads an array of these, of at most kMaxPromptChunks.
absl::StatusOr<std::vector<PromptPart>> ToChunks(const JsonPlace& place,
                                                 const nlohmann::json& value);

}  // namespace baton
