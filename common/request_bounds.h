// What a request may say of itself, at a router and on the command line.
//
// Thread safety: constants.
#pragma once

#include <cstdint>

namespace baton {

inline constexpr int32_t kMinPriority = -100;
inline constexpr int32_t kMaxPriority = 100;
inline constexpr int64_t kMaxRequestIdBytes = 128;  // request and session
inline constexpr int64_t kMaxTenantBytes = 256;     // tenant and cache salt

}  // namespace baton
