// Publishes the runs of 16 units on the paths of a prefix tree. It finds the blocks for
// PublishedRuns.
//
// A run may span several nodes of a path. The tree calls this class for reachable nodes only. So
// the published set is the set of full runs on the paths that a match can walk.
//
// Thread safety: used by the engine thread only.
#pragma once

#include <cstdint>

#include "cache/index/kv_event_batcher.h"
#include "cache/published_runs.h"
#include "cache/radix_nodes.h"
#include "common/strong_int.h"

namespace baton {

class RadixEvents {
 public:
  // `blocks` is the number of block ids. REQUIRES: the tree is empty; `nodes` and `events` outlive
  // this object.
  RadixEvents(int32_t blocks, const RadixNodes* nodes, KvEventBatcher* events);

  // The node gained its blocks from number `first` on.
  void Stored(RadixNodeIndex node, int32_t first);
  // Block `at` of the node will be removed. REQUIRES: all blocks after it are removed.
  void Removed(const RadixNode& node, int32_t at);
  // Everything will be removed.
  void Cleared() { runs_.Cleared(); }
  // Writes all published runs that are still stored to `events`, each path's runs in order. O(nodes
  // + runs).
  void Repeat(KvEventBatcher& events) const;

  // Address of a block's hashes, for prefetching.
  const void* HashesOf(BlockId block) const { return runs_.HashesOf(block); }

 private:
  bool EndsRun(const RadixNode& node, int32_t at) const { return runs_.EndsRun(node.begin + at); }
  BlockId RunBefore(RadixNodeIndex node, int32_t at) const;

  const RadixNodes& nodes_;
  PublishedRuns runs_;
};

}  // namespace baton
