#include "worker_rpc/role_lease.h"

#include "absl/strings/str_cat.h"
#include "common/printable_text.h"

namespace baton {

absl::Status RoleLease::Take(const std::string& planner, int64_t ms, int64_t now_us) {
  if (planner.size() > kMostNameBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "planner has ", planner.size(), " bytes; at most ", kMostNameBytes, " are allowed"));
  }
  if (ms < 0 || ms > kLongestMs) {
    return absl::InvalidArgumentError(
        absl::StrCat("lease_ms is ", ms, "; 0 to ", kLongestMs, " are allowed"));
  }
  if (!planner.empty() && planner != holder_ && now_us < until_us_) {
    return absl::FailedPreconditionError(absl::StrCat(
        holder_.empty() ? "an operator has set the role"
                        : absl::StrCat("planner ", Printable(holder_)),
        holder_.empty() ? "; planners may change it in " : " has the lease for another ",
        (until_us_ - now_us + 999) / 1000, " ms"));
  }
  holder_ = planner;
  until_us_ = now_us + ms * 1000;
  return absl::OkStatus();
}

}  // namespace baton
