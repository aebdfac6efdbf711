#include "routing/worker_places.h"

#include <algorithm>
#include <cstdint>
#include <tuple>

namespace baton {

void PlaceWorkers(std::vector<WorkerRecord>& workers) {
  // The first worker too many clears all places. With more, nothing is left to clear.
  if (workers.size() > kMostPlaced + 1) return;
  std::vector<WorkerRecord*> by_id;
  for (WorkerRecord& worker : workers) {
    worker.alike = 0;
    if (worker.Usable() && workers.size() <= kMostPlaced) by_id.push_back(&worker);
  }
  std::sort(by_id.begin(), by_id.end(), [](const WorkerRecord* a, const WorkerRecord* b) {
    return std::tie(a->report.role, a->report.id) < std::tie(b->report.role, b->report.id);
  });
  for (auto begin = by_id.begin(); begin != by_id.end();) {
    const auto end = std::find_if(begin, by_id.end(), [&](const WorkerRecord* worker) {
      return worker->report.role != (*begin)->report.role;
    });
    const auto alike = static_cast<int32_t>(end - begin);
    for (int32_t i = 0; i < alike; ++i, ++begin) {
      (*begin)->place = i;
      (*begin)->alike = alike;
    }
  }
}

}  // namespace baton
