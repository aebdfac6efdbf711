#include "router/waiting_line.h"

#include "absl/strings/str_cat.h"

namespace baton {

absl::Status WaitingLine::MayJoin(int64_t now_us, int64_t left_us) const {
  if (joined_us_.size() < kAlwaysAdmitted) return absl::OkStatus();
  const int64_t wait_us = now_us - *joined_us_.begin();
  if (wait_us <= left_us / 2) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      joined_us_.size(), " requests wait, the first for ", wait_us / 1000,
      " ms; this one has a deadline in ", left_us / 1000, " ms and would hardly be in time"));
}

void WaitingLine::Leave(int64_t joined_us) {
  const auto found = joined_us_.find(joined_us);
  if (found != joined_us_.end()) joined_us_.erase(found);
}

}  // namespace baton
