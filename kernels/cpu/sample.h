// The CPU's Sample op: divides the draws of a step among the threads of a pool.
//
// With many draws, a thread takes whole draws, so a row stays in its cache. With few draws, the
// threads share the chunks of each row. The maximum and the weight of a chunk do not depend on the
// thread that computes them.
//
// Thread safety: a scratch serves one thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cpu/thread_pool.h"
#include "kernels/ops.h"
#include "kernels/token_drawer.h"

namespace baton {

// Scratch memory of one stream. It grows to the needs of the largest step.
class SampleScratch {
 public:
  struct SharedDraw {
    std::span<const float> logits;  // with its additions applied
    std::vector<float> adjusted;
    std::vector<ChunkMaximum> maxima;  // one for each chunk
    std::vector<uint64_t> weights;     // one for each chunk
    RankedToken best;
  };
  struct Thread {
    TokenDrawer drawer;
    std::vector<float> adjusted;
  };

  // Return work space for `threads` threads, or for `draws` draws that the threads share.
  std::vector<Thread>& ForThreads(int threads);
  std::vector<SharedDraw>& ForDraws(int64_t draws);

 private:
  std::vector<Thread> threads_;
  std::vector<SharedDraw> draws_;
};

// Runs one Sample op on the threads of `pool` and returns when it is done.
void RunSample(ThreadPool& pool, SampleScratch& scratch, SampleArgs args);

}  // namespace baton
