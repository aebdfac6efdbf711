#include "cache/radix_locks.h"

#include <algorithm>
#include <vector>

#include "common/str_cat.h"

namespace baton {

// Adds one lock to every node from `index` up to `end`, exclusive.
void RadixLocks::LockBetween(RadixNodeIndex index, RadixNodeIndex end, NewUse use) {
  for (RadixNodeIndex at = index; at != end; at = nodes_[at].parent) {
    RadixNode& node = nodes_[at];
    if (node.is_queued) evictable_.Unqueue(at);  // before its key changes
    node.use.uses += use.uses;
    node.use.priority = std::max(node.use.priority, use.priority);
    if (node.locks++ == 0) evictable_.Locked(node);
  }
}

void RadixLocks::Lock(RadixNodeIndex node, int32_t priority) {
  ++nodes_[node].own_locks;
  LockBetween(node, kNoNode, {.uses = 1, .priority = priority});
}

void RadixLocks::MoveDown(RadixNodeIndex from, RadixNodeIndex to, int32_t priority) {
  --nodes_[from].own_locks;
  ++nodes_[to].own_locks;
  LockBetween(to, from, {.uses = 1, .priority = priority});
}

RadixNodeIndex RadixLocks::Unlock(RadixNodeIndex index) {
  --nodes_[index].own_locks;
  const uint64_t now = nodes_.Tick();
  RadixNodeIndex root = index;
  for (RadixNodeIndex at = index; at != kNoNode; at = nodes_[at].parent) {
    RadixNode& node = nodes_[at];
    root = at;
    node.use.last_used = now;
    if (--node.locks == 0) evictable_.Unlocked(at);
  }
  return root;
}

void RadixLocks::Pin(RadixNodeIndex node, BlockId block) {
  pinned_at_[block] = node;
  if (nodes_[node].pinned_blocks++ > 0) return;
  ++nodes_[node].own_locks;
  LockBetween(node, kNoNode, {.uses = 0, .priority = INT32_MIN});
}

RadixNodeIndex RadixLocks::Unpin(BlockId block) {
  const auto it = pinned_at_.find(block);
  if (it == pinned_at_.end()) return kNoNode;
  const RadixNodeIndex node = it->second;
  pinned_at_.erase(it);
  return --nodes_[node].pinned_blocks == 0 ? node : kNoNode;
}

absl::Status RadixLocks::CheckInvariants() const {
  const auto slots = nodes_.slots();
  std::vector<int32_t> child_locks(slots.size()), pins(slots.size());
  for (const RadixNode& node : slots) {
    if (node.live && node.parent != kNoNode) child_locks[node.parent] += node.locks;
  }
  for (const auto& [block, node] : pinned_at_) ++pins[node];
  for (size_t i = 0; i < slots.size(); ++i) {
    const RadixNode& node = slots[i];
    const auto broken = [&](std::string_view what) {
      return absl::InternalError(StrCat("radix node ", i, ": ", what));
    };
    if (node.pinned_blocks != pins[i]) return broken("pinned block count is wrong");
    if (!node.live) continue;
    if (node.locks != child_locks[i] + node.own_locks) return broken("lock count is wrong");
    if (node.own_locks < (node.pinned_blocks > 0 ? 1 : 0)) return broken("pins without a lock");
  }
  return absl::OkStatus();
}

}  // namespace baton
