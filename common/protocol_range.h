// Which versions of a protocol a side speaks, and the version that two sides use together.
//
// Thread safety: pure functions on plain data.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace baton {

// Every version from the oldest to the newest.
struct ProtocolRange {
  uint32_t oldest = 0;
  uint32_t newest = 0;

  bool operator==(const ProtocolRange&) const = default;
  // "5 to 6", or "6" where it is one version.
  std::string ToString() const;
};

// The range of a side that tells its newest version alone: builds speak the version before as well.
constexpr ProtocolRange ImpliedRange(uint32_t newest) {
  return {.oldest = newest == 0 ? 0 : newest - 1, .newest = newest};
}

// Whether there is a version that both speak. A range whose oldest version is above its newest has
// none.
constexpr bool HaveCommonVersion(ProtocolRange a, ProtocolRange b) {
  return std::max(a.oldest, b.oldest) <= std::min(a.newest, b.newest);
}

// The highest version that both speak. FailedPrecondition names both ranges when there is none.
absl::StatusOr<uint32_t> CommonVersion(ProtocolRange ours, ProtocolRange theirs);

}  // namespace baton
