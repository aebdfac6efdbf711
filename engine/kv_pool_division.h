// How many blocks each KV group of a pool gets beside a number of blocks of group 0.
//
// A pool of one group is what it is. A sliding-window group never needs more blocks than group 0,
// and mostly far fewer. It gets the least of:
//   - as many blocks as group 0, and
//   - what max_running sequences hold at once: one that computes its prompt, the others decoding;
//     and an eighth of group 0's blocks for the boundaries of cached prefixes.
// So a window holds up no sequence that group 0 has room for, unless several prompts are computed
// at once; then some of them wait. Without paging a sequence keeps a run in every group, and each
// gets as many blocks as group 0.
//
// Thread safety: an immutable value.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/block_counts.h"
#include "cache/kv_cache_spec.h"
#include "engine/engine_options.h"

namespace baton {

class KvPoolDivision {
 public:
  KvPoolDivision() = default;
  // `bytes_per_block` has one entry for each group. REQUIRES: CheckKvCacheSpec(spec) is OK; options
  // in range.
  KvPoolDivision(const KvCacheSpec& spec, std::vector<int64_t> bytes_per_block,
                 const EngineOptions& options);

  // Of every group, `full` of group 0 among them. Rises with `full`.
  BlockCounts BlocksFor(int32_t full) const;
  // Bytes of these blocks, without scratch blocks and alignment.
  int64_t BytesOf(const BlockCounts& blocks) const;
  // The most blocks of group 0 with which all groups fit in `bytes`; at most kMaxKvBlocks + 1.
  int64_t MostIn(int64_t bytes) const;

 private:
  std::vector<int64_t> bytes_per_block_;
  std::vector<int64_t> running_blocks_;  // of groups 1, 2, ...: what max_running sequences hold
  bool paged_ = true;
};

}  // namespace baton
