#include "rpc/reset_budget.h"

#include <algorithm>

namespace baton {

bool ResetBudget::IsExceeded(int64_t connection, int64_t unanswered, int64_t now_us) {
  Seen& seen = connections_.try_emplace(connection, Seen{.at_us = now_us}).first->second;
  const double forgotten = static_cast<double>(now_us - seen.at_us) * 1e-6 * limits_.per_second;
  const double begun = static_cast<double>(unanswered - seen.unanswered);
  seen = {.unanswered = unanswered,
          .at_us = now_us,
          .level = std::max(0.0, seen.level - forgotten + begun)};
  return seen.level > static_cast<double>(limits_.unanswered);
}

void ResetBudget::ForgetSeenBefore(int64_t now_us) {
  std::erase_if(connections_, [&](const auto& entry) { return entry.second.at_us < now_us; });
}

}  // namespace baton
