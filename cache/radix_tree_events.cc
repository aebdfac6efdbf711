// What a RadixTree tells of the runs of 16 units that it holds: where on their paths they lie.
#include <array>
#include <utility>
#include <vector>

#include "cache/radix_tree.h"
#include "common/check.h"

namespace baton {

void RadixTree::PublishTo(KvEventBatcher* events) {
  CHECK(roots_.empty() && cut_off_roots_ == 0) << "the tree is in use";
  published_ =
      std::make_unique<PublishedRuns>(block_size_, allocator_->capacity(), &units_, events);
}

// The block `distance` places before block `at` of the node, on its path. REQUIRES: there is one.
BlockId RadixTree::BlockBefore(NodeIndex node, int32_t at, int32_t distance) const {
  int32_t place = at - distance;
  while (place < 0) {
    node = nodes_[node].parent;
    place += nodes_[node].size();
  }
  return nodes_[node].blocks[place];
}

// The block that ends the run before the first one that ends in block `at` of the node, or
// kNoBlock.
BlockId RadixTree::RunBefore(NodeIndex node, int32_t at) const {
  const int32_t distance = published_->blocks_per_run();
  return nodes_[node].begin + at < distance ? kNoBlock : BlockBefore(node, at, distance);
}

CacheNamespace RadixTree::NamespaceOf(NodeIndex node) const {
  while (!nodes_[node].is_root) node = nodes_[node].parent;
  return nodes_[node].cache_namespace;
}

// Tells of the blocks of a published node from `first` on.
void RadixTree::PublishStored(NodeIndex index, int32_t first) {
  const Node& node = nodes_[index];
  const int32_t length = published_->blocks_per_run();
  std::array<BlockId, kUnitsPerHash> gathered;
  for (int32_t at = first; at < node.size(); ++at) {
    if (!EndsRun(node, at)) continue;
    std::span<const BlockId> run(gathered.data(), length);
    if (at + 1 >= length) {
      run = std::span<const BlockId>(node.blocks).subspan(at + 1 - length, length);
    } else {
      for (int32_t i = 0; i < length; ++i) gathered[i] = BlockBefore(index, at, length - 1 - i);
    }
    const BlockId before = RunBefore(index, at);
    published_->Stored(run, before,
                       before == kNoBlock ? NamespaceHash(NamespaceOf(index)) : Hash128());
  }
}

// Tells that block `at` of a published node goes. REQUIRES: what follows it is gone.
void RadixTree::PublishRemoved(const Node& node, int32_t at) {
  if (EndsRun(node, at)) published_->Removed(node.blocks[at]);
}

void RadixTree::PublishAll(KvEventBatcher& events) const {
  CHECK(published_ != nullptr);
  const std::vector<std::vector<NodeIndex>> children = ChildrenOfAll();
  std::vector<NodeIndex> stack;
  for (const auto& [cache_namespace, root] : roots_) stack.push_back(root);
  while (!stack.empty()) {
    const NodeIndex index = stack.back();
    stack.pop_back();
    const Node& node = nodes_[index];
    for (int32_t at = 0; at < node.size(); ++at) {
      if (!EndsRun(node, at)) continue;
      published_->Repeat(node.blocks[at], RunBefore(index, at), events);
    }
    stack.insert(stack.end(), children[index].begin(), children[index].end());
  }
}

}  // namespace baton
