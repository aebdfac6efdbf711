#include "cache/radix_events.h"

#include <array>
#include <span>
#include <vector>

namespace baton {

RadixEvents::RadixEvents(int32_t blocks, const RadixNodes* nodes, KvEventBatcher* events)
    : nodes_(*nodes), runs_(nodes->units().block_size(), blocks, &nodes->units(), events) {}

// The last block of the run before the first run that ends in block `at` of the node; kNoBlock if
// there is none.
BlockId RadixEvents::RunBefore(RadixNodeIndex node, int32_t at) const {
  const int32_t distance = runs_.blocks_per_run();
  return nodes_[node].begin + at < distance ? kNoBlock : nodes_.BlockBefore(node, at, distance);
}

void RadixEvents::Stored(RadixNodeIndex index, int32_t first) {
  const RadixNode& node = nodes_[index];
  const int32_t length = runs_.blocks_per_run();
  std::array<BlockId, kUnitsPerHash> gathered;
  for (int32_t at = first; at < node.size(); ++at) {
    if (!EndsRun(node, at)) continue;
    std::span<const BlockId> run(gathered.data(), length);
    if (at + 1 >= length) {
      run = std::span<const BlockId>(node.blocks).subspan(at + 1 - length, length);
    } else {
      for (int32_t i = 0; i < length; ++i) {
        gathered[i] = nodes_.BlockBefore(index, at, length - 1 - i);
      }
    }
    const BlockId before = RunBefore(index, at);
    runs_.Stored(run, before,
                 before == kNoBlock ? NamespaceHash(nodes_.NamespaceOf(index)) : Hash128());
  }
}

void RadixEvents::Removed(const RadixNode& node, int32_t at) {
  if (EndsRun(node, at)) runs_.Removed(node.blocks[at]);
}

void RadixEvents::Repeat(KvEventBatcher& events) const {
  const std::vector<std::vector<RadixNodeIndex>> children = nodes_.ChildrenOfAll();
  std::vector<RadixNodeIndex> stack;
  for (const auto& [cache_namespace, root] : nodes_.roots()) stack.push_back(root);
  while (!stack.empty()) {
    const RadixNodeIndex index = stack.back();
    stack.pop_back();
    const RadixNode& node = nodes_[index];
    for (int32_t at = 0; at < node.size(); ++at) {
      if (!EndsRun(node, at)) continue;
      runs_.Repeat(node.blocks[at], RunBefore(index, at), events);
    }
    stack.insert(stack.end(), children[index].begin(), children[index].end());
  }
}

}  // namespace baton
