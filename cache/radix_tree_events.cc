// What a RadixTree tells of the runs of 16 units that it holds.
#include <algorithm>
#include <utility>
#include <vector>

#include "cache/radix_tree.h"
#include "common/check.h"

namespace baton {

void RadixTree::PublishTo(KvEventBatcher* events) {
  CHECK(roots_.empty() && cut_off_roots_ == 0) << "the tree is in use";
  publication_ = std::make_unique<Publication>();
  publication_->events = events;
  publication_->runs_per_block = std::max(1, block_size_ / kUnitsPerHash);
  publication_->blocks_per_run = std::max(1, kUnitsPerHash / block_size_);
  publication_->hashes = std::make_unique_for_overwrite<Hash128[]>(size_t(allocator_->capacity()) *
                                                                   publication_->runs_per_block);
}

bool RadixTree::Publication::Hold(const Hash128& run, bool is_last) {
  return is_last || ++holders[run] == 1;
}

bool RadixTree::Publication::LetGo(const Hash128& run, bool is_last) {
  if (is_last) return true;
  const auto it = holders.find(run);
  CHECK(it != holders.end());
  if (--it->second > 0) return false;
  holders.erase(it);
  return true;
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

// The hash of the run that ends where the first run that ends in block `at` of the node begins.
std::optional<Hash128> RadixTree::RunBefore(NodeIndex node, int32_t at) const {
  const int32_t distance = publication_->blocks_per_run;
  if (nodes_[node].begin + at < distance) return std::nullopt;
  return publication_->Of(BlockBefore(node, at, distance)).back();
}

Hash128 RadixTree::RootHash(NodeIndex node) const {
  while (!nodes_[node].is_root) node = nodes_[node].parent;
  return NamespaceHash(nodes_[node].cache_namespace);
}

// The units of run number `run` of those that end in block `at` of the node.
std::array<CacheUnit, kUnitsPerHash> RadixTree::RunUnits(NodeIndex node, int32_t at,
                                                         int32_t run) const {
  std::array<CacheUnit, kUnitsPerHash> units;
  const int32_t blocks = publication_->blocks_per_run;
  const int32_t from_each = std::min(block_size_, kUnitsPerHash);
  for (int32_t i = 0; i < blocks; ++i) {
    units_.Read(BlockBefore(node, at, blocks - 1 - i), run * kUnitsPerHash,
                std::span(units).subspan(i * from_each, from_each));
  }
  return units;
}

// Tells of the blocks of a published node from `first` on.
void RadixTree::PublishStored(NodeIndex index, int32_t first) {
  const Node& node = nodes_[index];
  for (int32_t at = first; at < node.size(); ++at) {
    if (!EndsRun(node, at)) continue;
    std::optional<Hash128> before = RunBefore(index, at);
    const std::span<Hash128> runs = publication_->Of(node.blocks[at]);
    for (size_t i = 0; i < runs.size(); ++i) {
      runs[i] = NextChainedHash(before ? *before : RootHash(index),
                                RunUnits(index, at, static_cast<int32_t>(i)));
      if (publication_->Hold(runs[i], i + 1 == runs.size())) {
        publication_->events->Stored(before, runs[i]);
      }
      before = runs[i];
    }
  }
}

// Tells that block `at` of a published node goes. REQUIRES: what follows it is gone.
void RadixTree::PublishRemoved(const Node& node, int32_t at) {
  if (!EndsRun(node, at)) return;
  const std::span<const Hash128> runs = publication_->Of(node.blocks[at]);
  for (size_t i = runs.size(); i-- > 0;) {
    if (publication_->LetGo(runs[i], i + 1 == runs.size())) {
      publication_->events->Removed(runs[i]);
    }
  }
}

void RadixTree::PublishAll(KvEventBatcher& events) const {
  CHECK(publication_ != nullptr);
  const std::vector<std::vector<NodeIndex>> children = ChildrenOfAll();
  std::vector<NodeIndex> stack;
  for (const auto& [cache_namespace, root] : roots_) stack.push_back(root);
  while (!stack.empty()) {
    const NodeIndex index = stack.back();
    stack.pop_back();
    const Node& node = nodes_[index];
    for (int32_t at = 0; at < node.size(); ++at) {
      if (!EndsRun(node, at)) continue;
      std::optional<Hash128> before = RunBefore(index, at);
      for (const Hash128& run : publication_->Of(node.blocks[at])) {
        events.Stored(before, run);
        before = run;
      }
    }
    stack.insert(stack.end(), children[index].begin(), children[index].end());
  }
}

}  // namespace baton
