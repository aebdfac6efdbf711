// Selection of tokens by rank for one draw (NUMERICS §9), by the threads of one block.
//
// Keys of tokens have the order of their ranks: the larger logit first, then the lower token id.
// top_k and top_p both end in a threshold key. A radix search finds this key, digit by digit, with
// counts (top_k) or with weights (top_p).
//
// A cheap bound excludes most tokens. The others are candidates and go into a list in shared
// memory. If the list has no room for all, every pass scans the row again.
#pragma once

#include "kernels/cuda/sample_scan.cuh"
#include "kernels/exact_functions.h"
#include "kernels/softmax_weight_formula.h"

namespace baton::sample {

inline constexpr int kListed = 2048;
inline constexpr int kTokenBits = 20;
inline constexpr int kDigitBits = 8;
inline constexpr int kDigits = 7;  // 32 + kTokenBits bits

// Work space in shared memory.
struct SelectionShared {
  uint64_t weights[kSampleChunk];
  uint64_t chunk_weights[kMostSampleChunks];
  uint64_t histogram[1 << kDigitBits];
  uint64_t scratch[32];
  Found found;
  float values[kSampleChunk];
  float maxima[kMostSampleChunks];
  float listed_logits[kListed];
  TokenId listed_tokens[kListed];
  int listed;
  int first;
};
static_assert(sizeof(SelectionShared) <= kSelectionBytes, "the launch reserves this much");

__device__ inline uint64_t KeyOf(float logit, int64_t token) {
  const uint32_t bits = __float_as_uint(r1::Add(logit, 0.0f));  // -0 ranks as +0
  const uint32_t ordered = bits ^ ((bits >> 31) != 0 ? 0xffffffffu : 0x80000000u);
  return uint64_t{ordered} << kTokenBits |
         static_cast<uint64_t>((int64_t{1} << kTokenBits) - 1 - token);
}

class Selection {
 public:
  __device__ Selection(const SampleParams& params, int64_t draw_index, SelectionShared& space)
      : p(params), shared(space), draw(draw_index) {}

  // Loads the maxima. Returns the first token by rank if the draw is greedy, a code if the row has
  // none, and otherwise kNeedsDraw.
  static constexpr TokenId kNeedsDraw = -100;
  __device__ TokenId FindBest() {
    bool valid = true;
    best = MinusInfinity();
    for (int chunk = threadIdx.x; chunk < p.chunks; chunk += blockDim.x) {
      const float value = p.maxima[draw * p.chunks + chunk];
      shared.maxima[chunk] = value;
      valid = valid && value == value;
      best = value > best ? value : best;
    }
    for (int distance = 16; distance > 0; distance /= 2) {
      const float other = __shfl_xor_sync(kWholeWarp, best, distance);
      best = other > best ? other : best;
    }
    valid = __all_sync(kWholeWarp, valid) != 0;
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
      shared.scratch[threadIdx.x / 32] =
          valid ? uint64_t{__float_as_uint(best)} : uint64_t{1} << 32;
    }
    __syncthreads();
    for (int warp = 0; warp < blockDim.x / 32; ++warp) {
      if (shared.scratch[warp] >> 32 != 0) return kDrawNotANumber;
      const float other = __uint_as_float(static_cast<uint32_t>(shared.scratch[warp]));
      best = other > best ? other : best;
    }
    if (best == MinusInfinity()) return kDrawNothingAllowed;
    const DrawRule& rule = p.draws[draw].rule;
    if (rule.temperature == 0) return FirstTokenAt(best);
    scale = exact::kLog2E / static_cast<double>(rule.temperature);
    return kNeedsDraw;
  }

  // Returns the lowest token id with that logit, which exists.
  __device__ TokenId FirstTokenAt(float logit) {
    int chunk = 0;
    while (shared.maxima[chunk] != logit) ++chunk;
    LoadChunk(p, draw, chunk, shared.values);
    if (threadIdx.x == 0) shared.first = kSampleChunk;
    __syncthreads();
    for (int i = threadIdx.x; i < kSampleChunk; i += blockDim.x) {
      if (shared.values[i] == logit) atomicMin(&shared.first, i);
    }
    __syncthreads();
    return chunk * kSampleChunk + shared.first;
  }

  __device__ double ExponentOf(float logit) const { return SoftmaxExponent(logit, best, scale); }
  __device__ uint64_t WeightOf(float logit) const { return SoftmaxWeight(ExponentOf(logit)); }

  // Makes the tokens candidates whose logit and exponent reach the bounds. A list stays; later
  // bounds must be at least as tight.
  __device__ void SetBounds(float logit, double exponent) {
    least_logit = logit;
    least_exponent = exponent;
  }

  // Lists the candidates, if there is room.
  __device__ void ListCandidates() {
    __syncthreads();
    if (threadIdx.x == 0) shared.listed = 0;
    ForCandidates([&](float value, TokenId token) {
      const int at = atomicAdd(&shared.listed, 1);
      if (at >= kListed) return;
      shared.listed_logits[at] = value;
      shared.listed_tokens[at] = token;
    });
    __syncthreads();
    uses_list = shared.listed <= kListed;
  }

  // Calls fn(logit, token) for each candidate, in a thread of the block.
  template <typename Function>
  __device__ void ForCandidates(const Function& fn) {
    if (uses_list) {
      for (int i = threadIdx.x; i < shared.listed; i += blockDim.x) {
        if (IsCandidate(shared.listed_logits[i])) {
          fn(shared.listed_logits[i], shared.listed_tokens[i]);
        }
      }
      return;
    }
    for (int chunk = 0; chunk < p.chunks; ++chunk) {
      if (!IsCandidate(shared.maxima[chunk])) continue;
      LoadChunk(p, draw, chunk, shared.values);
      for (int i = threadIdx.x; i < kSampleChunk; i += blockDim.x) {
        const int64_t token = int64_t{chunk} * kSampleChunk + i;
        if (token < p.vocabulary && IsCandidate(shared.values[i])) {
          fn(shared.values[i], static_cast<TokenId>(token));
        }
      }
    }
  }
  // Exponents rise with logits, so a chunk whose maximum is no candidate has none.
  __device__ bool IsCandidate(float logit) const {
    return logit >= least_logit && !(ExponentOf(logit) < least_exponent);
  }

  // Returns the largest key such that the candidates from it on reach `target` together. Returns 0
  // if all together do not. amount_of(logit, key) is what a candidate counts.
  template <typename AmountOf>
  __device__ uint64_t FindKey(uint64_t target, const AmountOf& amount_of) {
    uint64_t prefix = 0;
    for (int digit = kDigits - 1; digit >= 0; --digit) {
      const int shift = digit * kDigitBits;
      __syncthreads();
      for (int i = threadIdx.x; i < 1 << kDigitBits; i += blockDim.x) shared.histogram[i] = 0;
      __syncthreads();
      ForCandidates([&](float logit, TokenId token) {
        const uint64_t key = KeyOf(logit, token);
        if ((key >> shift >> kDigitBits) != (prefix >> shift >> kDigitBits)) return;
        const uint64_t amount = amount_of(logit, key);
        if (amount == 0) return;
        atomicAdd(reinterpret_cast<unsigned long long*>(
                      &shared.histogram[key >> shift & ((1 << kDigitBits) - 1)]),
                  static_cast<unsigned long long>(amount));
      });
      constexpr int kLast = (1 << kDigitBits) - 1;
      const Found found = FindInSums(
          1 << kDigitBits, target - 1, [&](int i) { return shared.histogram[kLast - i]; },
          &shared.found);
      if (found.index > kLast) return 0;
      prefix |= static_cast<uint64_t>(kLast - found.index) << shift;
      target -= found.before;
    }
    return prefix;
  }

  // Returns a logit that at least `count` tokens reach: that of the chunk whose maximum has this
  // rank among all. If there are fewer chunks, every token reaches it.
  __device__ float LogitReachedBy(int count) {
    if (count > p.chunks) return MinusInfinity();
    __syncthreads();
    for (int chunk = threadIdx.x; chunk < p.chunks; chunk += blockDim.x) {
      int rank = 0;
      for (int other = 0; other < p.chunks; ++other) {
        const bool before = shared.maxima[other] > shared.maxima[chunk] ||
                            (shared.maxima[other] == shared.maxima[chunk] && other < chunk);
        rank += before ? 1 : 0;
      }
      if (rank == count - 1) shared.first = chunk;
    }
    __syncthreads();
    return shared.maxima[shared.first];
  }

  // Draws among the candidates whose key is at least `least_key`.
  __device__ TokenId Draw(uint64_t least_key, uint64_t random) {
    const uint64_t least_ordered = least_key >> kTokenBits;
    for (int chunk = 0; chunk < p.chunks; ++chunk) {
      uint64_t sum = 0;
      const float maximum = shared.maxima[chunk];
      if (IsCandidate(maximum) && KeyOf(maximum, 0) >> kTokenBits >= least_ordered) {
        FillWeights(chunk, least_key);
        for (int i = threadIdx.x; i < kSampleChunk; i += blockDim.x) sum += shared.weights[i];
        sum = SumOfBlock(sum, shared.scratch);
      }
      if (threadIdx.x == 0) shared.chunk_weights[chunk] = sum;
    }
    return DrawFromChunks(least_key, random);
  }

  // Draws among all candidates, whose sums by chunk are in the workspace.
  __device__ TokenId DrawFromAll(uint64_t random) {
    for (int chunk = threadIdx.x; chunk < p.chunks; chunk += blockDim.x) {
      shared.chunk_weights[chunk] = p.weights[draw * p.chunks + chunk];
    }
    return DrawFromChunks(0, random);
  }

 private:
  // Fills the weights of the tokens of a chunk; 0 where a token is not kept.
  __device__ void FillWeights(int chunk, uint64_t least_key) {
    LoadChunk(p, draw, chunk, shared.values);
    for (int i = threadIdx.x; i < kSampleChunk; i += blockDim.x) {
      const int64_t token = int64_t{chunk} * kSampleChunk + i;
      const float logit = shared.values[i];
      const bool kept =
          token < p.vocabulary && IsCandidate(logit) && KeyOf(logit, token) >= least_key;
      shared.weights[i] = kept ? WeightOf(logit) : 0;
    }
  }

  __device__ TokenId DrawFromChunks(uint64_t least_key, uint64_t random) {
    __syncthreads();
    uint64_t total = 0;
    for (int chunk = threadIdx.x; chunk < p.chunks; chunk += blockDim.x) {
      total += shared.chunk_weights[chunk];
    }
    total = SumOfBlock(total, shared.scratch);
    __extension__ using Wide = unsigned __int128;
    const auto target = static_cast<uint64_t>(static_cast<Wide>(random) * total >> 64);
    const Found chunk = FindInSums(
        p.chunks, target, [&](int i) { return shared.chunk_weights[i]; }, &shared.found);
    FillWeights(chunk.index, least_key);
    const Found token = FindInSums(
        kSampleChunk, target - chunk.before, [&](int i) { return shared.weights[i]; },
        &shared.found);
    return chunk.index * kSampleChunk + token.index;
  }

 public:
  const SampleParams& p;
  SelectionShared& shared;
  const int64_t draw;
  float best = 0;
  double scale = 0;

 private:
  float least_logit = 0;
  double least_exponent = 0;
  bool uses_list = false;
};

}  // namespace baton::sample
