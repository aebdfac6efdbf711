// Parts of the Sample kernels that all threads of a block compute together: chunks of logits with
// their additions, sums, and the search in running sums.
#pragma once

#include "kernels/cuda/device_code.cuh"
#include "kernels/cuda/sample_params.h"
#include "kernels/rounded_arithmetic.h"

namespace baton::sample {

inline constexpr unsigned kWholeWarp = 0xffffffffu;

__device__ inline float MinusInfinity() { return __uint_as_float(0xff800000u); }

// Loads a chunk of a draw's row, with the draw's additions, into `values` [kSampleChunk]. Places
// behind the vocabulary get -infinity. Every thread of the block calls it.
__device__ inline void LoadChunk(const SampleParams& p, int64_t draw, int chunk, float* values) {
  const int64_t first = int64_t{chunk} * kSampleChunk;
  const float* const row = p.logits + p.draws[draw].row * p.vocabulary;
  __syncthreads();  // the old values were read
  for (int i = threadIdx.x; i < kSampleChunk; i += blockDim.x) {
    values[i] = first + i < p.vocabulary ? row[first + i] : MinusInfinity();
  }
  __syncthreads();
  if (p.first_addition == nullptr) return;
  const int begin = p.first_addition[draw];
  const int end = p.first_addition[draw + 1];
  for (int i = begin + static_cast<int>(threadIdx.x); i < end; i += blockDim.x) {
    const TokenId token = p.additions[i].token;
    if (token < first || token >= first + kSampleChunk) continue;
    bool is_first = true;  // of its token; it adds all of them, in their order
    for (int other = begin; other < i && is_first; ++other) {
      is_first = p.additions[other].token != token;
    }
    if (!is_first) continue;
    float value = values[token - first];
    for (int other = i; other < end; ++other) {
      if (p.additions[other].token == token) value = r1::Add(value, p.additions[other].value);
    }
    values[token - first] = value;
  }
  __syncthreads();
}

// Returns the sum over the threads of the block. `scratch` has a value for each warp.
__device__ inline uint64_t SumOfBlock(uint64_t value, uint64_t* scratch) {
  for (int distance = 16; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(kWholeWarp, value, distance);
  }
  __syncthreads();
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
  __syncthreads();
  uint64_t sum = 0;
  for (int warp = 0; warp < blockDim.x / 32; ++warp) sum += scratch[warp];
  return sum;
}

struct Found {
  int index;        // the first at which the running sum exceeds the target; `count`: none
  uint64_t before;  // sum of the values before it
};
// Searches value_of(0), value_of(1), … of `count` values. Every thread calls it and gets the
// answer; `result` is in shared memory.
template <typename ValueOf>
__device__ Found FindInSums(int count, uint64_t target, const ValueOf& value_of, Found* result) {
  __syncthreads();  // the values are written, and the old result was read
  if (threadIdx.x < 32) {
    const int lane = threadIdx.x;
    const int each = (count + 31) / 32;
    const int begin = lane * each < count ? lane * each : count;
    const int end = begin + each < count ? begin + each : count;
    uint64_t sum = 0;
    for (int i = begin; i < end; ++i) sum += value_of(i);
    uint64_t through = sum;  // of the lanes up to this one
    for (int distance = 1; distance < 32; distance *= 2) {
      const uint64_t other = __shfl_up_sync(kWholeWarp, through, distance);
      if (lane >= distance) through += other;
    }
    const unsigned exceeding = __ballot_sync(kWholeWarp, through > target);
    if (exceeding == 0) {
      if (lane == 31) *result = {count, through};
    } else if (lane == __ffs(exceeding) - 1) {
      Found found{begin, through - sum};
      while (found.before + value_of(found.index) <= target) {
        found.before += value_of(found.index++);
      }
      *result = found;
    }
  }
  __syncthreads();
  return *result;
}

}  // namespace baton::sample
