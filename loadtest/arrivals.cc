#include "loadtest/arrivals.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace baton {

const std::vector<std::string>& ArrivalNames() {
  static const std::vector<std::string> kNames = {"poisson", "gamma", "constant", "trace",
                                                  "closed"};
  return kNames;
}

absl::StatusOr<ArrivalKind> ParseArrivalKind(const std::string& name) {
  const auto& names = ArrivalNames();
  const auto at = std::find(names.begin(), names.end(), name);
  if (at == names.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("is \"", name, "\"; must be one of ", absl::StrJoin(names, ", ")));
  }
  return static_cast<ArrivalKind>(at - names.begin());
}

int64_t ArrivalTimes::NextUs() {
  const double mean_us = 1e6 / options_.rate_per_s;
  if (at_us_ < 0) {
    at_us_ = 0;
  } else if (options_.kind == ArrivalKind::kConstant) {
    at_us_ += mean_us;
  } else if (options_.kind == ArrivalKind::kGamma) {
    at_us_ += random_.Gamma(options_.burstiness, mean_us);
  } else {
    at_us_ += random_.Exponential(mean_us);
  }
  return static_cast<int64_t>(at_us_);
}

}  // namespace baton
