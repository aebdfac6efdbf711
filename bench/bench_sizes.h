// Sizes of the work that cuda_bench measures: those of Llama 8B, and small ones for a rehearsal on
// the emulator.
//
// Thread safety: plain data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "bench/step_shapes.h"

namespace baton {

struct BenchSizes {
  LlamaShape shape;
  size_t copied;    // bytes of the copies
  double uncached;  // bytes of matrices that take turns
  int repeats;      // of small work in a graph
  double least_s;   // of each measurement
  std::vector<int64_t> decoded, tokens;
  std::vector<std::pair<int64_t, int64_t>> attention;  // sequences, context
  std::pair<int64_t, int64_t> prefix;                  // sequences, context
  std::vector<int64_t> prefill;                        // contexts
  int64_t chunk;
  int64_t square;
};

inline BenchSizes RealSizes(double least_s) {
  return {.shape = kLlama8B,
          .copied = size_t{2} << 30,
          .uncached = 300e6,
          .repeats = 20,
          .least_s = least_s,
          .decoded = {1, 8, 32, 128},
          .tokens = {1, 8, 32, 128, 2048},
          .attention = {{8, 8192}, {64, 1024}, {1, 65536}, {64, 8192}},
          .prefix = {64, 8192},
          .prefill = {2048, 8192},
          .chunk = 2048,
          .square = 8192};
}
inline BenchSizes TinySizes() {
  return {.shape = kTinyLlama,
          .copied = 1 << 20,
          .uncached = 0,
          .repeats = 1,
          .least_s = 0,
          .decoded = {1, 8},
          .tokens = {1, 8},
          .attention = {{2, 96}},
          .prefix = {3, 2080},  // shares 2,048 slots
          .prefill = {80},
          .chunk = 70,
          .square = 64};
}

}  // namespace baton
