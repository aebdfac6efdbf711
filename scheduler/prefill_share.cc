#include "scheduler/prefill_share.h"

#include <algorithm>

namespace baton {
namespace {

// Indices of prefills that may use the second half: shortest first, then in the order of service.
std::vector<int32_t> ShorterThanFirst(std::span<const PrefillDemand> line) {
  std::vector<int32_t> shorter;
  for (int32_t i = 1; i < static_cast<int32_t>(line.size()); ++i) {
    if (line[i].priority == line[0].priority && line[i].remaining < line[0].remaining) {
      shorter.push_back(i);
    }
  }
  std::stable_sort(shorter.begin(), shorter.end(),
                   [&](int32_t a, int32_t b) { return line[a].remaining < line[b].remaining; });
  return shorter;
}

}  // namespace

std::vector<int32_t> SharePrefillBudget(std::span<const PrefillDemand> line, int32_t budget,
                                        int32_t max_chunk) {
  std::vector<int32_t> share(line.size(), 0);
  if (line.empty()) return share;
  int32_t left = std::max(budget, 0);
  const auto give = [&](int32_t i, int32_t most) {
    const int32_t wanted = std::min(line[i].remaining, max_chunk) - share[i];
    const int32_t given = std::min({wanted, most, left});
    share[i] += given;
    left -= given;
  };
  give(0, left - left / 2);
  for (const int32_t i : ShorterThanFirst(line)) give(i, left);
  for (int32_t i = 0; i < static_cast<int32_t>(line.size()); ++i) give(i, left);
  return share;
}

}  // namespace baton
