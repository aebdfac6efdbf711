// Limits of tenants, and the file that holds them (--tenants).
//
// Each line of the file is a JSON object:
//
//   {"tenant": "acme", "requests_per_minute": 600, "tokens_per_minute": 100000, "weight": 2}
//   {"tenant": "globex", "kv_share": 0.25}
//   {"tenant": "*", "concurrent_requests": 4, "max_priority": 0}
//
// "*" stands for every tenant without a line of its own. A limit that a line does not name does not
// exist for its tenants. Empty lines, and lines that begin with "#", are ignored.
//
// Thread safety: plain data and pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace baton {

struct TenantLimits {
  // 0: no limit, also of the next two.
  int64_t requests_per_minute = 0;
  // Tokens of prompts and answers. A request reserves its prompt and its longest answer.
  int64_t tokens_per_minute = 0;
  int32_t concurrent_requests = 0;
  // Share of the work, relative to other tenants of the same priority that wait.
  double weight = 1;
  // Requests of a higher priority get this one.
  int32_t max_priority = std::numeric_limits<int32_t>::max();
  // Share of each worker's KV pool in which this tenant's cached prefixes are not evicted for
  // others (cache/cache_owners.h). 0: none. Only a tenant with a line of its own can have one.
  double kv_share = 0;

  bool operator==(const TenantLimits&) const = default;
};

class TenantTable {
 public:
  static constexpr int64_t kMaxPerMinute = int64_t{1} << 40;
  static constexpr int32_t kMaxConcurrent = 1 << 20;
  static constexpr double kLeastWeight = 0.001;
  static constexpr double kMostWeight = 1000;
  static constexpr size_t kMaxFileBytes = 16 << 20;

  // No limits, and weight 1, for every tenant.
  TenantTable() = default;
  // InvalidArgument names the line, the field and its range. Two lines for one tenant are an error.
  static absl::StatusOr<TenantTable> Parse(std::string_view text);

  bool IsListed(std::string_view tenant) const { return named_.contains(tenant); }
  const TenantLimits& LimitsOf(std::string_view tenant) const;
  size_t size() const { return named_.size(); }

 private:
  TenantLimits others_;
  std::map<std::string, TenantLimits, std::less<>> named_;
};

}  // namespace baton
