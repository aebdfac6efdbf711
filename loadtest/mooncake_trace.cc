#include "loadtest/mooncake_trace.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "common/printable_text.h"
#include "common/status_macros.h"
#include "common/str_cat.h"

namespace baton {
namespace {

constexpr size_t kMostShownValueBytes = 80;

absl::Status MooncakeFault(int64_t number, std::string_view message) {
  return absl::InvalidArgumentError(StrCat("line ", number, ": ", message));
}

std::string ShownJson(const nlohmann::json& value) {
  return Printable(value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace),
                   kMostShownValueBytes);
}

absl::StatusOr<int64_t> WholeNumber(const nlohmann::json& object, const char* field,
                                    int64_t minimum, int64_t maximum, int64_t number) {
  const auto at = object.find(field);
  if (at == object.end()) return MooncakeFault(number, StrCat(field, " is missing"));
  const bool is_number = at->is_number_unsigned() &&
                         at->get<uint64_t>() >= static_cast<uint64_t>(minimum) &&
                         at->get<uint64_t>() <= static_cast<uint64_t>(maximum);
  if (is_number) return at->get<int64_t>();
  return MooncakeFault(number, StrCat(field, " is ", ShownJson(*at),
                                      "; must be a whole number from ", minimum, " to ", maximum));
}

}  // namespace

absl::StatusOr<TracedRequest> ParseMooncakeLine(std::string_view line, int64_t number) {
  constexpr int64_t kMaxMs = int64_t{365} * 86'400'000;
  const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return MooncakeFault(number, "is not a JSON object");
  ASSIGN_OR_RETURN(const int64_t at_ms, WholeNumber(json, "timestamp", 0, kMaxMs, number));
  ASSIGN_OR_RETURN(const int64_t input,
                   WholeNumber(json, "input_length", 1, kMaxTracedTokens, number));
  ASSIGN_OR_RETURN(const int64_t output,
                   WholeNumber(json, "output_length", 0, kMaxTracedTokens, number));
  const auto ids = json.find("hash_ids");
  if (ids == json.end()) return MooncakeFault(number, "hash_ids is missing");
  if (!ids->is_array() || ids->empty() || ids->size() > kMaxTracedTokens) {
    return MooncakeFault(number, StrCat("hash_ids is ", ShownJson(*ids),
                                        "; must be an array of 1 to ", kMaxTracedTokens, " ids"));
  }
  TracedRequest request = {.at_us = at_ms * 1000,
                           .prompt_tokens = static_cast<int32_t>(input),
                           .output_tokens = static_cast<int32_t>(std::max<int64_t>(1, output)),
                           .hash_ids = {}};
  request.hash_ids.reserve(ids->size());
  for (size_t i = 0; i < ids->size(); ++i) {
    const nlohmann::json& id = (*ids)[i];
    if (!id.is_number_unsigned()) {
      return MooncakeFault(number, StrCat("hash_ids[", i, "] is ", ShownJson(id),
                                          "; must be a whole number from 0 to 2^64-1"));
    }
    request.hash_ids.push_back(id.get<uint64_t>());
  }
  return request;
}

}  // namespace baton
