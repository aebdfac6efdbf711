#include "cache/radix_tree.h"

#include <algorithm>

#include "common/check.h"
#include "common/status_macros.h"
#include "common/str_cat.h"

namespace baton {

RadixLock& RadixLock::operator=(RadixLock&& other) noexcept {
  if (this == &other) return *this;
  Drop();
  tree_ = std::exchange(other.tree_, nullptr);
  node_ = std::exchange(other.node_, kNoNode);
  priority_ = other.priority_;
  return *this;
}

void RadixLock::Drop() {
  if (tree_ == nullptr) return;
  std::exchange(tree_, nullptr)->Unlock(std::exchange(node_, kNoNode));
}

RadixTree::RadixTree(int32_t block_size, BlockAllocator* allocator, EvictionPolicy policy,
                     uint64_t hash_seed, uint32_t hash_mask)
    : block_size_(block_size),
      allocator_(allocator),
      nodes_(block_size, allocator->capacity(), hash_seed, hash_mask),
      evictable_(policy, &nodes_, &owners_),
      locks_(&nodes_, &evictable_) {}

RadixTree::~RadixTree() {
  for (const RadixNode& node : nodes_.slots()) {
    CHECK_EQ(node.locks, 0) << "a lock outlives its tree";
    if (node.live) allocator_->ReleaseHolds(node.blocks, BlockHolder::kCache);
  }
}

void RadixTree::AddWindow(WindowCache* window) {
  CHECK(nodes_.empty()) << "the tree is not empty";
  windows_.Add(window);
}

void RadixTree::PublishTo(KvEventBatcher* events) {
  CHECK(nodes_.empty()) << "the tree is not empty";
  events_.emplace(allocator_->capacity(), &nodes_, events);
}

void RadixTree::PublishAll(KvEventBatcher& events) const {
  CHECK(events_.has_value());
  events_->Repeat(events);
}

// ---- lookups without a lock ---------------------------------------------------------------------

RadixPeek RadixTree::Peek(CacheNamespace cache_namespace, std::span<const CacheUnit> units,
                          int32_t max_blocks) const {
  RadixPeek peek;
  const RadixNodeIndex root = nodes_.FindRoot(cache_namespace);
  if (root == kNoNode) return peek;
  if (!windows_.empty()) return PeekWhole(root, units, max_blocks);
  const Position end =
      nodes_.Walk(root, units, max_blocks, [&](const RadixNode& node, int32_t blocks) {
        if (node.locks == 0) peek.evictable_blocks += blocks;
      });
  peek.blocks = end.blocks;
  return peek;
}

RadixPeek RadixTree::PeekWhole(RadixNodeIndex root, std::span<const CacheUnit> units,
                               int32_t max_blocks) const {
  std::vector<BlockId> blocks;
  std::vector<int32_t> evictable_before = {0};  // by number of leading blocks
  nodes_.Walk(root, units, max_blocks, [&](const RadixNode& node, int32_t count) {
    blocks.insert(blocks.end(), node.blocks.begin(), node.blocks.begin() + count);
    for (int32_t i = 0; i < count; ++i) {
      evictable_before.push_back(evictable_before.back() + (node.locks == 0 ? 1 : 0));
    }
  });
  const int32_t whole = windows_.LongestWhole(blocks);
  return {.blocks = whole, .evictable_blocks = evictable_before[whole]};
}

RadixTree::Position RadixTree::Find(CacheNamespace cache_namespace,
                                    std::span<const CacheUnit> units) const {
  const RadixNodeIndex root = nodes_.FindRoot(cache_namespace);
  if (root == kNoNode) return {};
  const int32_t blocks = static_cast<int32_t>(units.size() / block_size_);
  const Position end = nodes_.Walk(root, units, blocks, [](const RadixNode&, int32_t) {});
  return end.blocks == blocks ? end : Position();
}

bool RadixTree::Contains(CacheNamespace cache_namespace, std::span<const CacheUnit> units) const {
  return units.size() < size_t(block_size_) || Find(cache_namespace, units).node != kNoNode;
}

// ---- match and insert ---------------------------------------------------------------------------

RadixTree::Position RadixTree::WholeBefore(Position end, std::span<const BlockId> blocks) const {
  const int32_t whole = windows_.LongestWhole(blocks);
  while (end.blocks > whole) {
    const int32_t cut = std::min(end.blocks - whole, end.in_node);
    end.blocks -= cut;
    end.in_node -= cut;
    if (end.in_node > 0) break;
    end.node = nodes_[end.node].parent;
    end.in_node = nodes_[end.node].size();
  }
  return end;
}

RadixNodeIndex RadixTree::NodeEndingAt(const Position& position) {
  if (position.in_node == nodes_[position.node].size()) return position.node;
  ++totals_.splits;
  return nodes_.Split(position.node, position.in_node);
}

RadixMatch RadixTree::Match(CacheNamespace cache_namespace, std::span<const CacheUnit> units,
                            int32_t max_blocks, int32_t min_blocks, int32_t priority,
                            std::optional<CacheOwner> owner) {
  RadixMatch match;
  const RadixNodeIndex root = nodes_.FindOrAddRoot(cache_namespace);
  if (owner.has_value()) SetOwnerOf(root, *owner);
  Position end = nodes_.Walk(root, units, max_blocks, [&](const RadixNode& node, int32_t blocks) {
    match.blocks.insert(match.blocks.end(), node.blocks.begin(), node.blocks.begin() + blocks);
  });
  if (!windows_.empty()) {
    end = WholeBefore(end, match.blocks);
    match.blocks.resize(end.blocks);
  }
  RadixNodeIndex node = root;
  if (end.blocks < min_blocks) {
    match.blocks.clear();
  } else {
    node = NodeEndingAt(end);
  }
  locks_.Lock(node, priority);
  match.lock = RadixLock(this, node, priority);
  return match;
}

void RadixTree::Append(RadixNodeIndex index, std::span<const CacheUnit> units,
                       std::span<const BlockId> blocks) {
  nodes_.Append(index, units, blocks);
  const RadixNode& node = nodes_[index];
  const auto count = static_cast<int32_t>(blocks.size());
  evictable_.Added(node, count);
  totals_.inserted_blocks += count;
  allocator_->AddHolds(blocks, BlockHolder::kCache);
  if (allocator_->pinned() > 0) {
    for (const BlockId block : blocks) {
      if (allocator_->pins(block) > 0) locks_.Pin(index, block);
    }
  }
  if (IsPublished(node)) events_->Stored(index, node.size() - count);
}

int32_t RadixTree::Insert(RadixLock& lock, std::span<const CacheUnit> units,
                          std::span<BlockId> blocks) {
  CHECK(lock.tree_ == this);
  CHECK_EQ(units.size(), blocks.size() * block_size_);
  int32_t present = 0;
  const Position at =
      nodes_.Walk(lock.node_, units, static_cast<int32_t>(blocks.size()),
                  [&](const RadixNode& node, int32_t equal) {
                    std::copy_n(node.blocks.begin(), equal, blocks.begin() + present);
                    present += equal;
                  });
  totals_.duplicate_blocks += present;
  RadixNodeIndex end = NodeEndingAt(at);
  if (present < static_cast<int32_t>(blocks.size())) {
    const auto new_units = units.subspan(size_t(present) * block_size_);
    // A leaf that has no other lock grows in place. So insertion chunk by chunk makes one node
    // instead of a chain.
    const int32_t our_locks = end == lock.node_ ? 1 : 0;
    const RadixNode& node = nodes_[end];
    const bool grows = !node.is_root && node.child_count == 0 && node.locks == our_locks;
    if (!grows) end = nodes_.AddChild(end, new_units.first(block_size_));
    Append(end, new_units, blocks.subspan(present));
  }
  // Locks a new node at once, so that it is not queued for eviction.
  locks_.MoveDown(std::exchange(lock.node_, end), end, lock.priority_);
  return present;
}

bool RadixTree::HasBehind(const RadixLock& lock, std::span<const CacheUnit> units) const {
  CHECK(lock.tree_ == this);
  CHECK_EQ(static_cast<int64_t>(units.size()), block_size_);
  return nodes_.Walk(lock.node_, units, 1, [](const RadixNode&, int32_t) {}).blocks == 1;
}

// ---- locks --------------------------------------------------------------------------------------

RadixLock RadixTree::Duplicate(const RadixLock& lock) {
  CHECK(lock.tree_ == this);
  locks_.Lock(lock.node_, lock.priority_);
  return RadixLock(this, lock.node_, lock.priority_);
}

void RadixTree::Unlock(RadixNodeIndex index) {
  const RadixNodeIndex root = locks_.Unlock(index);
  const bool is_cut_off = nodes_[root].is_cut_off;
  RemoveRootIfUnused(root);
  if (is_cut_off) DropUpwards(index);
}

void RadixTree::PinBlock(BlockId block) {
  const RadixNodeIndex node = nodes_.node_of(block);
  if (node != kNoNode) locks_.Pin(node, block);
}

void RadixTree::UnpinBlock(BlockId block) {
  const RadixNodeIndex node = locks_.Unpin(block);
  if (node != kNoNode) Unlock(node);
}

// ---- counts and checks --------------------------------------------------------------------------

RadixStats RadixTree::Stats() const {
  RadixStats stats = totals_;
  stats.namespaces = static_cast<int64_t>(nodes_.roots().size());
  stats.nodes = nodes_.size();
  stats.evictable_blocks = evictable_blocks();
  stats.protected_blocks = protected_blocks();
  return stats;
}

absl::Status RadixTree::CheckNode(const RadixNode& node) const {
  const auto broken = [&](std::string_view what) {
    return absl::InternalError(StrCat("radix tree: ", what));
  };
  if (node.is_root && node.locks == 0 && node.child_count == 0) return broken("an unused root");
  for (const BlockId block : node.blocks) {
    if (allocator_->holds(block, BlockHolder::kCache) != 1) {
      return broken(StrCat("its holds of block ", block.value(), " are not exactly one"));
    }
    if (node.locks == 0 && allocator_->is_in_use(block)) {
      return broken(StrCat("block ", block.value(), " is in use, but its node is not locked"));
    }
  }
  return absl::OkStatus();
}

absl::Status RadixTree::CheckInvariants() const {
  RETURN_IF_ERROR(nodes_.CheckInvariants());
  RETURN_IF_ERROR(locks_.CheckInvariants());
  RETURN_IF_ERROR(evictable_.CheckInvariants());
  RETURN_IF_ERROR(CheckOwners());
  for (const RadixNode& node : nodes_.slots()) {
    if (node.live) RETURN_IF_ERROR(CheckNode(node));
  }
  for (const WindowCache* window : windows_) {
    for (int32_t i = 0; i < allocator_->capacity(); ++i) {
      const BlockId block(i);
      if (window->At(block) == kNoBlock) continue;
      if (ContainsBlock(block) && window->OwnerOf(window->At(block)) == OwnerOf(block)) continue;
      return absl::InternalError(StrCat("radix tree: block ", i, " has a block of window ",
                                        window->window(),
                                        ", but is not in the tree or has another owner"));
    }
  }
  return absl::OkStatus();
}

}  // namespace baton
