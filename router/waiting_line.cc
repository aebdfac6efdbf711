#include "router/waiting_line.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace baton {

absl::Status WaitingLine::MayJoin(int64_t now_us, int64_t left_us) const {
  if (!IsLine()) return absl::OkStatus();
  const int64_t first_us = now_us - *joined_us_.begin();
  const bool knows_pace = paced_ == kPaceTokens;
  const int64_t wait_us =
      knows_pace ? static_cast<int64_t>(pace_us_ * static_cast<double>(size())) : first_us;
  if (wait_us <= left_us / 2) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(size(), " requests wait, the first for ", first_us / 1000,
                   " ms, one more for about ", wait_us / 1000, " ms; this one has a deadline in ",
                   left_us / 1000, " ms and would hardly be in time"));
}

void WaitingLine::Join(int64_t now_us) {
  joined_us_.insert(now_us);
  if (IsLine() && !served_us_) served_us_ = now_us;
}

void WaitingLine::Served(int64_t joined_us, int64_t now_us) {
  if (!joined_us_.contains(joined_us)) return;
  if (served_us_) {
    paced_ = std::min(paced_ + 1, kPaceTokens);
    const auto interval_us = static_cast<double>(std::max<int64_t>(0, now_us - *served_us_));
    pace_us_ += (interval_us - pace_us_) / paced_;
    served_us_ = now_us;
  }
  GaveUp(joined_us);
}

void WaitingLine::GaveUp(int64_t joined_us) {
  const auto found = joined_us_.find(joined_us);
  if (found == joined_us_.end()) return;
  joined_us_.erase(found);
  if (!IsLine()) served_us_.reset();
}

}  // namespace baton
