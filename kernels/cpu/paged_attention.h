// Divides paged attention into units for the thread pool and merges their states.
//
// A group is a set of adjacent tokens of one sequence whose runs agree, at most one query tile.
// There are two ways to divide the work:
// - If there are enough groups of similar size, a unit is a (group, kv heads). It walks the
//   segments of its runs and merges them as it goes.
// - Otherwise a unit is a (group, kv heads, segment), as in Flash-Decoding. The states are merged
//   afterwards.
//
// Both ways merge in the order of NUMERICS §8, so they give the same bits. The division depends on
// device buffers (sequences, runs), so it is made when the op runs.
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

// Memory that attention reuses from call to call. It grows to the needs of the largest call: two
// query tiles of states for each thread, or one state for each row of the batch plus kSplitStates.
class AttentionScratch {
 public:
  // Returns at least `count` states and invalidates earlier ones. Fails a CHECK if memory runs out.
  AttentionState* States(size_t count);

  // Segments [begin, end) of run `run` with slots that a token of the group sees.
  struct Span {
    int64_t run = 0;
    int64_t begin = 0;
    int64_t end = 0;
  };
  std::vector<Span> spans;

  // Adjacent tokens [token_begin, token_end) of one sequence. They have the same number of runs,
  // and these agree in tile_origin and query_offset. Span i of the group belongs to run i.
  struct Group {
    int64_t token_begin = 0;
    int64_t token_end = 0;
    int64_t first_span = 0;
    int64_t span_count = 0;
    int64_t segments = 0;    // total of all spans
    int64_t first_item = 0;  // number of items of the groups before

    int64_t tokens() const { return token_end - token_begin; }
  };
  std::vector<Group> groups;

  // One segment of one group. Its states start at `first_state`.
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

// Runs one PagedAttention op on the threads of `pool` and returns when it is done.
void RunPagedAttention(const CpuKernels& kernels, ThreadPool& pool, AttentionScratch& scratch,
                       const PagedAttentionArgs& args);

}  // namespace baton
