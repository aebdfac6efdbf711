// Computes the number of blocks of each KV group, given the number of blocks of group 0.
//
// A pool of one group has nothing to divide. A sliding-window group never needs more blocks than
// group 0, and usually needs far fewer. It gets the smaller of:
//  - as many blocks as group 0, and
//  - the blocks that max_running sequences use at once, plus an eighth of group 0's blocks for the
//    boundaries of cached prefixes. One of the sequences computes its prompt, the others decode.
//
// So a window does not delay a sequence that group 0 has room for, unless several prompts are
// computed at once; then some of them wait. Without paging a sequence has a contiguous run in every
// group, so each group gets as many blocks as group 0.
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
  // are in range.
  KvPoolDivision(const KvCacheSpec& spec, std::vector<int64_t> bytes_per_block,
                 const EngineOptions& options);

  // Returns the blocks of every group when group 0 has `full`. No count falls when `full` grows.
  BlockCounts BlocksFor(int32_t full) const;
  // Bytes of these blocks, without scratch blocks and alignment.
  int64_t BytesOf(const BlockCounts& blocks) const;
  // Largest number of blocks of group 0 with which all groups fit in `bytes`; at most kMaxKvBlocks
  // + 1.
  int64_t MostIn(int64_t bytes) const;

 private:
  std::vector<int64_t> bytes_per_block_;
  std::vector<int64_t> running_blocks_;  // of groups 1, 2, ...: blocks of max_running sequences
  bool paged_ = true;
};

}  // namespace baton
