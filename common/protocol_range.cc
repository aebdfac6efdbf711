#include "common/protocol_range.h"

#include "absl/strings/str_cat.h"

namespace baton {

std::string ProtocolRange::ToString() const {
  return oldest == newest ? absl::StrCat(newest) : absl::StrCat(oldest, " to ", newest);
}

absl::StatusOr<uint32_t> CommonVersion(ProtocolRange ours, ProtocolRange theirs) {
  if (!HaveCommonVersion(ours, theirs)) {
    return absl::FailedPreconditionError(
        absl::StrCat("protocol_version: ours ", ours.ToString(), ", theirs ", theirs.ToString()));
  }
  return std::min(ours.newest, theirs.newest);
}

}  // namespace baton
