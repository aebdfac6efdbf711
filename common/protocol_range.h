// Versions of a protocol that one side speaks, and the version that two sides use together.
//
// Thread safety: pure functions on plain data.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace baton {

// All versions from the oldest to the newest.
struct ProtocolRange {
  uint32_t oldest = 0;
  uint32_t newest = 0;

  bool operator==(const ProtocolRange&) const = default;
  // Returns "5 to 6", or "6" for a single version.
  std::string ToString() const;
};

// Returns the range of a side that names only its newest version. Such builds also speak the
// version before it.
constexpr ProtocolRange ImpliedRange(uint32_t newest) {
  return {.oldest = newest == 0 ? 0 : newest - 1, .newest = newest};
}

// Returns true if there is a version that both sides speak. A range is empty if its oldest version
// is above its newest.
constexpr bool HaveCommonVersion(ProtocolRange a, ProtocolRange b) {
  return std::max(a.oldest, b.oldest) <= std::min(a.newest, b.newest);
}

// Returns the highest version that both sides speak. FailedPrecondition names both ranges if there
// is none.
absl::StatusOr<uint32_t> CommonVersion(ProtocolRange ours, ProtocolRange theirs);

}  // namespace baton
