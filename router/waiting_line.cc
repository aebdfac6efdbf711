#include "router/waiting_line.h"

#include "absl/strings/str_cat.h"

namespace baton {

absl::Status WaitingLine::MayJoin(int64_t now_us, int64_t left_us) const {
  if (!IsLine()) return absl::OkStatus();
  const int64_t first_us = now_us - *joined_us_.begin();
  const auto line = static_cast<int64_t>(size());
  const auto intervals = static_cast<int64_t>(served_.size()) - 1;
  const int64_t wait_us = served_.size() < kFewestPaced
                              ? first_us
                              : line * (LineUs(now_us) - served_.front()) / intervals;
  if (wait_us <= left_us / 2) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(size(), " requests wait, the first for ", first_us / 1000,
                   " ms, one more for about ", wait_us / 1000, " ms; this one has a deadline in ",
                   left_us / 1000, " ms and would hardly be in time"));
}

void WaitingLine::Join(int64_t now_us) {
  const bool was_line = IsLine();
  joined_us_.insert(now_us);
  if (IsLine() && !was_line) line_since_us_ = now_us;
}

void WaitingLine::Served(int64_t joined_us, int64_t now_us) {
  if (IsLine() && joined_us_.contains(joined_us)) {
    if (served_.size() == kMostPaced) served_.pop_front();
    served_.push_back(LineUs(now_us));
  }
  GaveUp(joined_us, now_us);
}

void WaitingLine::GaveUp(int64_t joined_us, int64_t now_us) {
  const auto found = joined_us_.find(joined_us);
  if (found == joined_us_.end()) return;
  const int64_t line_us = LineUs(now_us);
  joined_us_.erase(found);
  if (!IsLine()) lines_before_us_ = line_us;
}

}  // namespace baton
