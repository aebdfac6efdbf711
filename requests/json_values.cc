#include "requests/json_values.h"

#include <cmath>
#include <utility>

#include "common/request_bounds.h"
#include "common/status_macros.h"

namespace baton {

using Json = nlohmann::json;

std::optional<absl::int128> WholeNumber(const Json& value) {
  if (value.is_number_unsigned()) return absl::int128(value.get<uint64_t>());
  if (value.is_number_integer()) return absl::int128(value.get<int64_t>());
  if (!value.is_number_float()) return std::nullopt;
  const auto number = value.get<double>();
  if (number != std::trunc(number)) return std::nullopt;
  constexpr double kExact = 9007199254740992;  // 2^53
  if (std::abs(number) < kExact) return absl::int128(static_cast<int64_t>(number));
  return number > 0 ? absl::Int128Max() : absl::Int128Min();
}

absl::Status RangeFault(const JsonPlace& place, const Json& value, std::string_view allowed) {
  return place.FaultOf(absl::StrCat(
      "is ", value.dump(), "; ", absl::string_view(allowed.data(), allowed.size()), " is allowed"));
}

absl::StatusOr<std::string> ToText(const JsonPlace& place, const Json& value) {
  if (!value.is_string()) return place.FaultOf("must be a string");
  return value.get<std::string>();
}

absl::StatusOr<bool> ToBool(const JsonPlace& place, const Json& value) {
  if (!value.is_boolean()) return place.FaultOf("must be true or false");
  return value.get<bool>();
}

absl::StatusOr<std::vector<TokenId>> ToTokenIds(const JsonPlace& place, const Json& value) {
  if (!value.is_array()) return place.FaultOf("must be an array of token ids");
  if (static_cast<int64_t>(value.size()) > kMaxPromptTokenIds) {
    return place.FaultOf(
        absl::StrCat("has ", value.size(), " token ids; at most ", kMaxPromptTokenIds));
  }
  std::vector<TokenId> out;
  out.reserve(value.size());
  for (size_t i = 0; i < value.size(); ++i) {
    ASSIGN_OR_RETURN(const TokenId id, ToInteger<TokenId>(place.Element(i), value[i], 0));
    out.push_back(id);
  }
  return out;
}

absl::StatusOr<PromptPart> ToPromptPart(const JsonPlace& place, const Json& value) {
  if (value.is_string()) return PromptPart(value.get<std::string>());
  if (!value.is_array()) return place.FaultOf("must be a string or an array of token ids");
  ASSIGN_OR_RETURN(std::vector<TokenId> ids, ToTokenIds(place, value));
  return PromptPart(std::move(ids));
}

absl::StatusOr<std::vector<PromptPart>> ToChunks(const JsonPlace& place, const Json& value) {
  if (!value.is_array()) {
    return place.FaultOf("must be an array of chunks; each is a string or an array of token ids");
  }
  if (static_cast<int64_t>(value.size()) > kMaxPromptChunks) {
    return place.FaultOf(
        absl::StrCat("has ", value.size(), " entries; at most ", kMaxPromptChunks, " are allowed"));
  }
  std::vector<PromptPart> out;
  out.reserve(value.size());
  for (size_t i = 0; i < value.size(); ++i) {
    ASSIGN_OR_RETURN(PromptPart part, ToPromptPart(place.Element(i), value[i]));
    out.push_back(std::move(part));
  }
  return out;
}

}  // namespace baton
