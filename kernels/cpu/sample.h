// The CPU's Sample op: draws of a step shared among the threads of a pool.
//
// Many draws: a thread takes a whole draw, whose row stays in its cache. Few: threads share the
// chunks of a row, whose maxima and weights do not depend on who computes them.
//
// Thread safety: one thread at a time for one scratch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cpu/thread_pool.h"
#include "kernels/ops.h"
#include "kernels/token_drawer.h"

namespace baton {

// Work space of one stream. Grows to what the largest step needs.
class SampleScratch {
 public:
  struct SharedDraw {
    std::span<const float> logits;  // with its additions
    std::vector<float> adjusted;
    std::vector<ChunkMaximum> maxima;  // one for each chunk
    std::vector<uint64_t> weights;     // the same
    RankedToken best;
  };
  struct Thread {
    TokenDrawer drawer;
    std::vector<float> adjusted;
  };

  // For `threads` threads, or for `draws` draws that they share.
  std::vector<Thread>& ForThreads(int threads);
  std::vector<SharedDraw>& ForDraws(int64_t draws);

 private:
  std::vector<Thread> threads_;
  std::vector<SharedDraw> draws_;
};

void RunSample(ThreadPool& pool, SampleScratch& scratch, const SampleArgs& args);

}  // namespace baton
