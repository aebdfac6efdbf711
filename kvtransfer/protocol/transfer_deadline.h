// Limits of a transfer's timeout, and its conversion into a deadline.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace baton {

inline constexpr int64_t kMaxTransferTimeoutMs = 24 * 3600 * 1000;

// InvalidArgument unless 0 <= timeout_ms <= kMaxTransferTimeoutMs.
inline absl::Status CheckTimeout(int64_t timeout_ms) {
  if (timeout_ms >= 0 && timeout_ms <= kMaxTransferTimeoutMs) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("timeout_ms ", timeout_ms, " is outside [0, ", kMaxTransferTimeoutMs, "]"));
}

inline int64_t DeadlineUs(int64_t now_us, int64_t timeout_ms) { return now_us + timeout_ms * 1000; }

}  // namespace baton
