#include "router/load_shedder.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/error_details.h"

namespace baton {

absl::Status LoadShedder::MayJoin(int64_t now_us, int64_t left_us, int32_t priority,
                                  size_t most_ahead) const {
  const int32_t counted = std::clamp(priority, -kMostPriority, kMostPriority);
  size_t before = 0;
  int64_t first_joined_us = std::numeric_limits<int64_t>::max();
  for (const auto& [level, joined_us] : joined_us_) {
    if (level < counted) break;
    before += joined_us.size();
    first_joined_us = std::min(first_joined_us, *joined_us.begin());
  }
  before = std::min(before, most_ahead);
  if (before < kAlwaysAdmitted) return absl::OkStatus();
  const int64_t first_us = now_us - first_joined_us;
  const auto intervals = static_cast<int64_t>(served_.size()) - 1;
  const int64_t wait_us =
      served_.size() < kFewestPaced
          ? first_us
          : static_cast<int64_t>(before) * (LineUs(now_us) - served_.front()) / intervals;
  if (wait_us <= left_us / 2) return absl::OkStatus();
  absl::Status refusal = absl::ResourceExhaustedError(
      absl::StrCat(before, " requests wait ahead of this one, the first for ", first_us / 1000,
                   " ms. This one would wait about ", wait_us / 1000, " ms, more than half of the ",
                   left_us / 1000, " ms until its deadline. Try again later"));
  // At the pace of the queue, an equal request would be accepted then.
  SetRetryAfterMs(refusal, (wait_us - left_us / 2 + 999) / 1000);
  return refusal;
}

LoadShedder::Place LoadShedder::Join(int64_t now_us, int32_t priority) {
  const Place place{.priority = std::clamp(priority, -kMostPriority, kMostPriority),
                    .joined_us = now_us};
  const bool was_line = IsLine();
  joined_us_[place.priority].insert(now_us);
  ++size_;
  if (IsLine() && !was_line) line_since_us_ = now_us;
  return place;
}

bool LoadShedder::Has(const Place& place) const {
  const auto level = joined_us_.find(place.priority);
  return level != joined_us_.end() && level->second.contains(place.joined_us);
}

void LoadShedder::Served(const Place& place, int64_t now_us) {
  if (IsLine() && Has(place)) {
    if (served_.size() == kMostPaced) served_.pop_front();
    served_.push_back(LineUs(now_us));
  }
  GaveUp(place, now_us);
}

void LoadShedder::GaveUp(const Place& place, int64_t now_us) {
  if (!Has(place)) return;
  const int64_t line_us = LineUs(now_us);
  const auto level = joined_us_.find(place.priority);
  level->second.erase(level->second.find(place.joined_us));
  if (level->second.empty()) joined_us_.erase(level);
  --size_;
  if (!IsLine()) lines_before_us_ = line_us;
}

}  // namespace baton
