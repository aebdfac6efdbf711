#include "kvtransfer/protocol/send_queue.h"

#include <algorithm>

#include "common/check.h"

namespace baton {

void SendQueue::Add(uint64_t transfer, int32_t priority) {
  const auto [level, is_new] = levels_.try_emplace(priority);
  if (is_new) level->second.since = blocks_;
  level->second.transfers.push_back(transfer);
}

void SendQueue::Remove(uint64_t transfer, int32_t priority) {
  const auto level = levels_.find(priority);
  if (level == levels_.end()) return;
  level->second.transfers.remove(transfer);
  if (level->second.transfers.empty()) levels_.erase(level);
}

SendQueue::Levels::const_iterator SendQueue::LevelOf(uint64_t block) const {
  CHECK(!levels_.empty());
  if (block % kOthersEvery != 0) return levels_.begin();
  return std::min_element(levels_.begin(), levels_.end(), [](const auto& a, const auto& b) {
    return a.second.since < b.second.since;
  });
}

uint64_t SendQueue::Next() const { return LevelOf(blocks_ + 1)->second.transfers.front(); }

uint64_t SendQueue::Take() {
  const auto level = levels_.find(LevelOf(++blocks_)->first);
  level->second.since = blocks_;
  const uint64_t transfer = level->second.transfers.front();
  level->second.transfers.pop_front();
  if (level->second.transfers.empty()) levels_.erase(level);
  return transfer;
}

}  // namespace baton
