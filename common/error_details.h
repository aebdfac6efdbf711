// Machine-readable details of an error, carried beside its message within one process. gRPC does
// not carry them.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace baton {

// The field of the request that is wrong, such as "messages[0].content". No effect on OK.
void SetErrorParam(absl::Status& status, std::string_view param);
std::string ErrorParam(const absl::Status& status);  // empty: none

// When the client should try again. No effect on OK.
void SetRetryAfterMs(absl::Status& status, int64_t ms);
std::optional<int64_t> RetryAfterMs(const absl::Status& status);

// Marks a refusal that a tenant's own limit caused, not the load. No effect on OK.
void SetTenantLimit(absl::Status& status);
bool IsTenantLimit(const absl::Status& status);

}  // namespace baton
