#include "router/tenant_table.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/request_bounds.h"
#include "common/status_macros.h"
#include "requests/json_text.h"
#include "requests/json_values.h"

namespace baton {
namespace {

constexpr char kOthers[] = "*";
constexpr JsonLimits kLineLimits = {.max_bytes = 4096, .max_depth = 1, .max_values = 64};
constexpr int32_t kMostPriority = 100;

template <typename Integer>
absl::Status ReadInteger(const JsonPlace& place, const nlohmann::json& value, Integer least,
                         Integer most, Integer& out) {
  ASSIGN_OR_RETURN(const Integer number, ToInteger<Integer>(place, value, least, most));
  if (number < least || number > most) {
    return place.FaultOf(absl::StrCat("is ", number, "; [", least, ", ", most, "] is allowed"));
  }
  out = number;
  return absl::OkStatus();
}

absl::Status ReadNumber(const JsonPlace& place, const nlohmann::json& value, double least,
                        double most, double& out) {
  if (!value.is_number()) return place.FaultOf("must be a number");
  const auto number = value.get<double>();
  if (!(number >= least && number <= most)) {
    return place.FaultOf(
        absl::StrCat("is ", value.dump(), "; [", least, ", ", most, "] is allowed"));
  }
  out = number;
  return absl::OkStatus();
}

absl::Status ReadField(const std::string& name, const JsonPlace& place, const nlohmann::json& value,
                       std::string& tenant, TenantLimits& limits) {
  if (name == "tenant") {
    ASSIGN_OR_RETURN(tenant, ToText(place, value));
    if (tenant.size() <= static_cast<size_t>(kMaxTenantBytes)) return absl::OkStatus();
    return place.FaultOf(
        absl::StrCat("has ", tenant.size(), " bytes; at most ", kMaxTenantBytes, " are allowed"));
  }
  if (name == "requests_per_minute") {
    return ReadInteger<int64_t>(place, value, 1, TenantTable::kMaxPerMinute,
                                limits.requests_per_minute);
  }
  if (name == "tokens_per_minute") {
    return ReadInteger<int64_t>(place, value, 1, TenantTable::kMaxPerMinute,
                                limits.tokens_per_minute);
  }
  if (name == "concurrent_requests") {
    return ReadInteger<int32_t>(place, value, 1, TenantTable::kMaxConcurrent,
                                limits.concurrent_requests);
  }
  if (name == "weight") {
    return ReadNumber(place, value, TenantTable::kLeastWeight, TenantTable::kMostWeight,
                      limits.weight);
  }
  if (name == "kv_share") return ReadNumber(place, value, 0, 1, limits.kv_share);
  if (name == "max_priority") {
    return ReadInteger<int32_t>(place, value, -kMostPriority, kMostPriority, limits.max_priority);
  }
  return place.FaultAtKey(
      absl::StrCat("there is no field \"", name,
                   "\"; known are tenant, requests_per_minute, tokens_per_minute, "
                   "concurrent_requests, weight, max_priority and kv_share"));
}

absl::StatusOr<std::pair<std::string, TenantLimits>> ReadLine(std::string_view text, int64_t line) {
  ASSIGN_OR_RETURN(const nlohmann::json object, ParseJson(text, line, kLineLimits));
  const JsonPlace place(text, line);
  if (!object.is_object()) return place.Fault("a tenant must be a JSON object");
  if (!object.contains("tenant")) return place.Fault("the field \"tenant\" is missing");
  std::pair<std::string, TenantLimits> out;
  for (const auto& [name, value] : object.items()) {
    RETURN_IF_ERROR(ReadField(name, place.Member(name), value, out.first, out.second));
  }
  return out;
}

}  // namespace

absl::StatusOr<TenantTable> TenantTable::Parse(std::string_view text) {
  if (text.size() > kMaxFileBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the file has ", text.size(), " bytes; at most ",
                                                   kMaxFileBytes, " are allowed"));
  }
  TenantTable out;
  bool has_others = false;
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
    if (line.empty() || line.front() == '#') continue;
    ASSIGN_OR_RETURN(auto tenant, ReadLine(line, number));
    bool is_new = true;
    if (tenant.first == kOthers) {
      is_new = !std::exchange(has_others, true);
      if (tenant.second.kv_share > 0) {
        return JsonPlace(line, number)
            .Member("kv_share")
            .FaultOf("needs a tenant with a line of its own; \"*\" stands for many");
      }
      out.others_ = tenant.second;
    } else {
      is_new = out.named_.emplace(tenant.first, tenant.second).second;
    }
    if (!is_new) {
      return JsonPlace(line, number)
          .Fault(absl::StrCat("tenant \"", tenant.first, "\" has an earlier line"));
    }
  }
  return out;
}

const TenantLimits& TenantTable::LimitsOf(std::string_view tenant) const {
  const auto it = named_.find(tenant);
  return it == named_.end() ? others_ : it->second;
}

}  // namespace baton
