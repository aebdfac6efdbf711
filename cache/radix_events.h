// Tells of the runs of 16 units on the paths of a prefix tree: where PublishedRuns' blocks lie.
//
// A run may span several nodes of a path. What was told of is the set of full runs on the paths
// that a match can walk: the tree calls this for reachable nodes alone.
//
// Thread safety: belongs to the engine thread.
#pragma once

#include <cstdint>

#include "cache/index/kv_event_batcher.h"
#include "cache/published_runs.h"
#include "cache/radix_nodes.h"
#include "common/strong_int.h"

namespace baton {

class RadixEvents {
 public:
  // `blocks`: how many ids there are. REQUIRES: the tree is empty; `nodes` and `events` outlive
  // this.
  RadixEvents(int32_t blocks, const RadixNodes* nodes, KvEventBatcher* events);

  // The blocks of the node from number `first` on came.
  void Stored(RadixNodeIndex node, int32_t first);
  // Block `at` of the node goes. REQUIRES: what follows it is gone.
  void Removed(const RadixNode& node, int32_t at);
  // Everything goes.
  void Cleared() { runs_.Cleared(); }
  // Tells `events` of all that was told of and is there, runs that follow each other together.
  // O(nodes + runs).
  void Repeat(KvEventBatcher& events) const;

  // Where a block's hashes are: memory to ask for ahead of its use.
  const void* HashesOf(BlockId block) const { return runs_.HashesOf(block); }

 private:
  bool EndsRun(const RadixNode& node, int32_t at) const { return runs_.EndsRun(node.begin + at); }
  BlockId RunBefore(RadixNodeIndex node, int32_t at) const;

  const RadixNodes& nodes_;
  PublishedRuns runs_;
};

}  // namespace baton
