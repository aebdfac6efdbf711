// Cuts paged attention into units for the thread pool and joins their states.
//
// Tokens are cut into groups: neighbours of one sequence with like runs, at most a query tile.
// Where there are enough groups of like size, a unit is a (group, kv heads) that walks the segments
// of its runs and merges as it goes. Otherwise a unit is a (group, kv heads, segment), as in
// Flash-Decoding, and the states are merged afterwards. Both merge in the order of NUMERICS §8, so
// any cut gives the same bits.
//
// The cut depends on device buffers (sequences, runs), so it is made when the op runs.
//
// Thread safety: a scratch serves one call at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/huge_page_buffer.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/ops.h"

namespace baton {

// Memory that attention reuses from call to call; grows to what the largest call needed. States:
// 2 query tiles for each thread, or one for each row of the batch and kSplitStates more.
class AttentionScratch {
 public:
  // At least `count` states; earlier ones are forgotten. Running out of memory is fatal.
  AttentionState* States(size_t count);

  // The segments [begin, end) of run `run` that hold slots which a token of the group sees.
  struct Span {
    int64_t run = 0;
    int64_t begin = 0;
    int64_t end = 0;
  };
  std::vector<Span> spans;

  // Neighbouring tokens [token_begin, token_end) of one sequence. They have equally many runs,
  // which agree in tile_origin and query_offset, and span i of the group is that of run i.
  struct Group {
    int64_t token_begin = 0;
    int64_t token_end = 0;
    int64_t first_span = 0;
    int64_t span_count = 0;
    int64_t segments = 0;    // of all spans
    int64_t first_item = 0;  // items of the groups before

    int64_t tokens() const { return token_end - token_begin; }
  };
  std::vector<Group> groups;

  // One segment of one group; its states start at `first_state`.
  struct Item {
    int64_t group = 0;
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
