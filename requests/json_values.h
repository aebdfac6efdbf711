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
#include <string_view>
#include <vector>

#include "absl/numeric/int128.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/prompt_chunks.h"
#include "common/token_id.h"
#include "requests/json_text.h"

namespace baton {

// Returns the number of a JSON number without a fraction, such as 16 or 16.0; nothing for any other
// value. A number with a point or an exponent is exact only below 2^53; from there on, the result
// lies outside every 64-bit range.
std::optional<absl::int128> WholeNumber(const nlohmann::json& value);

// `allowed`: "[1, 16]".
absl::Status RangeFault(const JsonPlace& place, const nlohmann::json& value,
                        std::string_view allowed);

// Returns a whole number that Integer can hold. The caller checks its range. The fault of a number
// that Integer cannot hold names `least` and `most` as the range.
template <typename Integer>
absl::StatusOr<Integer> ToInteger(const JsonPlace& place, const nlohmann::json& value,
                                  Integer least = std::numeric_limits<Integer>::min(),
                                  Integer most = std::numeric_limits<Integer>::max()) {
  const std::optional<absl::int128> number = WholeNumber(value);
  if (!number) return place.FaultOf("must be a whole number");
  using Limits = std::numeric_limits<Integer>;
  if (*number >= absl::int128(Limits::min()) && *number <= absl::int128(Limits::max())) {
    return static_cast<Integer>(*number);
  }
  return RangeFault(place, value, absl::StrCat("[", least, ", ", most, "]"));
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
