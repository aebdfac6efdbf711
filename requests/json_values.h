// Reads the values of a request from JSON: text, numbers, token ids, and parts of a chunked prompt.
// A value of another type, or out of range, is a fault at its place.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/prompt_chunks.h"
#include "common/token_id.h"
#include "requests/json_text.h"

namespace baton {

template <typename Integer>
absl::StatusOr<Integer> ToInteger(const JsonPlace& place, const nlohmann::json& value) {
  if (!value.is_number_integer()) return place.FaultOf("must be a whole number");
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (std::in_range<Integer>(number)) return static_cast<Integer>(number);
  } else {
    const auto number = value.get<int64_t>();
    if (std::in_range<Integer>(number)) return static_cast<Integer>(number);
  }
  return place.FaultOf(absl::StrCat("is ", value.dump(), "; ", std::numeric_limits<Integer>::min(),
                                    " to ", std::numeric_limits<Integer>::max(), " is allowed"));
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
