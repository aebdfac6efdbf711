// Cuts paged attention into units for the thread pool and joins their states.
//
// Tokens are cut into runs: neighbours of one sequence, at most a query tile. Where there are
// enough runs of like size, a unit is a (run, kv heads) that walks its segments and merges as it
// goes; otherwise a unit is a (run, kv heads, segment) (split attention, as Flash-Decoding does),
// and the states are merged afterwards, in rising order in both cases: any cut gives the same bits.
//
// The cut depends on device buffers (sequences, ranges), so it is made when the op runs.
//
// Thread safety: a scratch serves one call at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/huge_page_buffer.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/ops.h"

namespace baton {

// Memory that attention reuses from call to call; grows to what the largest call needed. States:
// 2 query tiles for each thread, or one for each row of the batch and kSplitStates more.
class AttentionScratch {
 public:
  // At least `count` states; earlier ones are forgotten. Running out of memory is fatal.
  AttentionState* States(size_t count);

  // Neighbouring tokens [token_begin, token_end) of one sequence that see only slots of segments
  // [segment_begin, segment_end).
  struct Run {
    int64_t token_begin = 0;
    int64_t token_end = 0;
    int64_t segment_begin = 0;
    int64_t segment_end = 0;
    int64_t first_item = 0;  // items of the runs before

    int64_t tokens() const { return token_end - token_begin; }
    int64_t segments() const { return segment_end - segment_begin; }
  };
  std::vector<Run> runs;

  // One segment of one run; its states start at `first_state`.
  struct Item {
    int64_t run = 0;
    int64_t segment = 0;
    int64_t first_state = 0;
  };
  std::vector<Item> items;

 private:
  HugePageBuffer buffer_;
};

void RunPagedAttention(const CpuKernels& kernels, ThreadPool& pool, AttentionScratch& scratch,
                       const PagedAttentionArgs& args);

}  // namespace baton
