// Limits of request fields that are not sampling parameters. request_check.h checks them.
//
// Thread safety: constants.
#pragma once

#include <cstdint>

namespace baton {

inline constexpr int32_t kMinPriority = -100;
inline constexpr int32_t kMaxPriority = 100;
inline constexpr int64_t kMaxRequestIdBytes = 128;  // of request and session ids
inline constexpr int64_t kMaxTenantBytes = 256;     // of tenant and cache salt
inline constexpr int64_t kMaxMessages = 4096;       // of a conversation
// No model has a longer context.
inline constexpr int64_t kMaxPromptTokenIds = 1 << 20;

}  // namespace baton
