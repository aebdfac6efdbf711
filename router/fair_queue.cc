#include "router/fair_queue.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "common/check.h"

namespace baton {

void FairQueue::Push(uint64_t id, std::string_view tenant, int32_t priority, double weight,
                     double cost) {
  CHECK(weight > 0 && cost >= 0) << weight << " " << cost;
  Level& level = levels_[priority];
  double& finish =
      level.finish_tags.try_emplace(std::string(tenant), level.virtual_time).first->second;
  const double start = std::max(level.virtual_time, finish);
  const double charge = cost / weight;
  finish = start + charge;
  const Key key(start, arrivals_++);
  level.waiting.emplace(key, Waiting{.id = id, .tenant = std::string(tenant), .charge = charge});
  CHECK(places_.emplace(id, Place{.priority = priority, .key = key}).second) << id;
}

std::optional<uint64_t> FairQueue::Pop() {
  for (auto& [priority, level] : levels_) {
    if (level.waiting.empty()) continue;
    const auto first = level.waiting.begin();
    level.virtual_time = std::get<0>(first->first);
    const uint64_t id = first->second.id;
    level.waiting.erase(first);
    places_.erase(id);
    return id;
  }
  return std::nullopt;
}

bool FairQueue::Remove(uint64_t id) {
  const auto place = places_.find(id);
  if (place == places_.end()) return false;
  Level& level = levels_[place->second.priority];
  const auto waiting = level.waiting.find(place->second.key);
  Correct(waiting->second.tenant, place->second.priority, 1, -waiting->second.charge);
  level.waiting.erase(waiting);
  places_.erase(place);
  return true;
}

size_t FairQueue::Ahead(std::string_view tenant, int32_t priority) const {
  size_t ahead = 0;
  for (const auto& [of, level] : levels_) {
    if (of < priority) break;
    if (of > priority) {
      ahead += level.waiting.size();
      continue;
    }
    const auto finish = level.finish_tags.find(tenant);
    const double start = finish == level.finish_tags.end()
                             ? level.virtual_time
                             : std::max(level.virtual_time, finish->second);
    const auto after = level.waiting.lower_bound(Key(start, arrivals_));
    ahead += static_cast<size_t>(std::distance(level.waiting.begin(), after));
  }
  return ahead;
}

void FairQueue::Correct(std::string_view tenant, int32_t priority, double weight,
                        double difference) {
  const auto level = levels_.find(priority);
  if (level == levels_.end()) return;
  const auto finish = level->second.finish_tags.find(tenant);
  if (finish != level->second.finish_tags.end()) finish->second += difference / weight;
}

void FairQueue::ForgetIdle() {
  for (auto level = levels_.begin(); level != levels_.end();) {
    // Without requests, virtual time stands still, and debts would never end.
    if (level->second.waiting.empty()) {
      level = levels_.erase(level);
      continue;
    }
    const double now = level->second.virtual_time;
    std::erase_if(level->second.finish_tags,
                  [now](const auto& tenant) { return tenant.second <= now; });
    ++level;
  }
}

}  // namespace baton
