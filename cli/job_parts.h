// Reads token ids and the parts of a chunked prompt from a job.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cli/json_line.h"
#include "common/prompt_chunks.h"
#include "common/token_id.h"

namespace baton {

template <typename Integer>
absl::StatusOr<Integer> ToInteger(const JsonPlace& place, const nlohmann::json& value) {
  if (!value.is_number_integer()) return place.FaultOf("must be a whole number");
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number <= static_cast<uint64_t>(std::numeric_limits<Integer>::max())) {
      return static_cast<Integer>(number);
    }
  } else if (std::is_signed_v<Integer>) {
    const auto number = value.get<int64_t>();
    if (number >= static_cast<int64_t>(std::numeric_limits<Integer>::min())) {
      return static_cast<Integer>(number);
    }
  }
  return place.FaultOf(absl::StrCat("is ", value.dump(), "; ", std::numeric_limits<Integer>::min(),
                                    "–", std::numeric_limits<Integer>::max(), " is allowed"));
}

absl::StatusOr<std::vector<TokenId>> ToTokenIds(const JsonPlace& place,
                                                const nlohmann::json& value);

// Reads a string or an array of token ids.
absl::StatusOr<PromptPart> ToPromptPart(const JsonPlace& place, const nlohmann::json& value);
// Reads an array of these, of at most kMaxPromptChunks.
absl::StatusOr<std::vector<PromptPart>> ToChunks(const JsonPlace& place,
                                                 const nlohmann::json& value);

}  // namespace baton
