// Draws tokens from rows of logits (NUMERICS §9, without penalties). Every block of a draw reads
// the same integers, so the token is the host sampler's.
//
// Three kernels run one after the other. The first two use a block for each chunk of each row, so
// that one row keeps all multiprocessors busy. The third uses a block for each draw, and reads only
// chunks that can hold a kept token.
//
// Predicted limits for a row of 128 Ki logits: the maxima are bound by reading 512 KiB; the weights
// by 30 instructions of binary64 for each logit, 2 µs on sm_90 with 132 multiprocessors. The last
// kernel is bound by latency, some 10 µs, unless top_k exceeds the number of chunks.
#include "kernels/cuda/device_code.cuh"
#include "kernels/cuda/kernel_order.cuh"
#include "kernels/cuda/sample_params.h"
#include "kernels/cuda/sample_selection.cuh"

namespace baton::sample {
namespace {

__device__ bool KeepsTopK(const DrawRule& rule, int64_t vocabulary) {
  return rule.top_k > 0 && rule.top_k < vocabulary;
}
// Returns true if the draw needs the weights of all chunks.
__device__ bool ReadsChunkWeights(const DrawRule& rule, int64_t vocabulary) {
  return !KeepsTopK(rule, vocabulary) && (rule.top_p < 1 || !(rule.min_p > 0));
}

__device__ double LeastExponentOfMinP(float min_p) {
  return min_p > 0 ? exact::Log(min_p) * exact::kLog2E : -exact::Infinity();
}
// All tokens below this bound hold together less than the share 1 - top_p, so top_p keeps none of
// them.
__device__ double LeastExponentOfTopP(float top_p, int64_t vocabulary, uint64_t total) {
  constexpr double kSlack = 1e-6;  // larger than the rounding errors here
  const double share = 1.0 - static_cast<double>(top_p);
  const double weight = static_cast<double>(total) * share / static_cast<double>(vocabulary);
  return exact::Log(weight) * exact::kLog2E - kSoftmaxWeightBits - kSlack;
}
__device__ uint64_t NeededOf(float top_p, uint64_t total) {
  return static_cast<uint64_t>(ceil(static_cast<double>(top_p) * static_cast<double>(total)));
}

__device__ TokenId DrawByRule(const SampleParams& p, Selection& selection) {
  const DrawRule& rule = p.draws[selection.draw].rule;
  const uint64_t random = RandomBits(p.draws[selection.draw].key);
  const double min_p = LeastExponentOfMinP(rule.min_p);
  const auto weight_of = [&](float logit, uint64_t) { return selection.WeightOf(logit); };
  if (!KeepsTopK(rule, p.vocabulary)) {
    if (!(rule.top_p < 1)) {
      selection.SetBounds(MinusInfinity(), min_p);
      return rule.min_p > 0 ? selection.Draw(0, random) : selection.DrawFromAll(random);
    }
    uint64_t total = 0;
    for (int chunk = threadIdx.x; chunk < p.chunks; chunk += blockDim.x) {
      total += p.weights[selection.draw * p.chunks + chunk];
    }
    total = SumOfBlock(total, selection.shared.scratch);
    const double top_p = LeastExponentOfTopP(rule.top_p, p.vocabulary, total);
    selection.SetBounds(MinusInfinity(), top_p > min_p ? top_p : min_p);
    selection.ListCandidates();
    return selection.Draw(selection.FindKey(NeededOf(rule.top_p, total), weight_of), random);
  }
  const float reached = selection.LogitReachedBy(rule.top_k);
  selection.SetBounds(reached, -exact::Infinity());
  selection.ListCandidates();
  uint64_t key = selection.FindKey(static_cast<uint64_t>(rule.top_k),
                                   [](float, uint64_t) { return uint64_t{1}; });
  // min_p and top_p both remove the lowest ranks, and the total for top_p includes the tokens that
  // min_p removes.
  uint64_t total = 0;
  selection.ForCandidates([&](float logit, TokenId token) {
    if (KeyOf(logit, token) >= key) total += selection.WeightOf(logit);
  });
  total = SumOfBlock(total, selection.shared.scratch);
  selection.SetBounds(reached, min_p);
  if (rule.top_p < 1) {
    const uint64_t cut = selection.FindKey(
        NeededOf(rule.top_p, total),
        [&](float logit, uint64_t at) { return at >= key ? selection.WeightOf(logit) : 0; });
    key = cut > key ? cut : key;
  }
  return selection.Draw(key, random);
}

__device__ void ScanChunk(const SampleParams& p) {
  BeginKernel();
  auto& shared = *SharedMemory<SelectionShared>();
  const int64_t draw = blockIdx.x;
  if (p.draws[draw].row < 0) return;
  LoadChunk(p, draw, blockIdx.y, shared.values);
  float maximum = MinusInfinity();
  bool valid = true;
  for (int i = threadIdx.x; i < kSampleChunk; i += blockDim.x) {
    const float value = shared.values[i];
    maximum = value > maximum ? value : maximum;
    valid = valid && value < -MinusInfinity();
  }
  for (int distance = 16; distance > 0; distance /= 2) {
    const float other = __shfl_xor_sync(kWholeWarp, maximum, distance);
    maximum = other > maximum ? other : maximum;
  }
  valid = __all_sync(kWholeWarp, valid) != 0;
  if (threadIdx.x % 32 == 0) {
    shared.maxima[threadIdx.x / 32] = valid ? maximum : __uint_as_float(0x7fffffffu);
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int warp = 0; warp < blockDim.x / 32; ++warp) {
    const float other = shared.maxima[warp];
    valid = valid && other == other;
    maximum = other > maximum ? other : maximum;
  }
  p.maxima[draw * p.chunks + blockIdx.y] = valid ? maximum : __uint_as_float(0x7fffffffu);
}

__device__ void SumChunk(const SampleParams& p) {
  BeginKernel();
  auto& shared = *SharedMemory<SelectionShared>();
  const int64_t draw = blockIdx.x;
  const RowDraw& of = p.draws[draw];
  if (of.row < 0 || of.rule.temperature == 0 || !ReadsChunkWeights(of.rule, p.vocabulary)) return;
  Selection selection(p, draw, shared);
  if (selection.FindBest() != Selection::kNeedsDraw) return;
  LoadChunk(p, draw, blockIdx.y, shared.values);
  uint64_t sum = 0;
  for (int i = threadIdx.x; i < kSampleChunk; i += blockDim.x) {
    const int64_t token = int64_t{blockIdx.y} * kSampleChunk + i;
    if (token < p.vocabulary) sum += selection.WeightOf(shared.values[i]);
  }
  sum = SumOfBlock(sum, shared.scratch);
  if (threadIdx.x == 0) p.weights[draw * p.chunks + blockIdx.y] = sum;
}

__device__ void DrawToken(const SampleParams& p) {
  BeginKernel();
  auto& shared = *SharedMemory<SelectionShared>();
  const int64_t draw = blockIdx.x;
  TokenId token = kDrawSkipped;
  if (p.draws[draw].row >= 0) {
    Selection selection(p, draw, shared);
    token = selection.FindBest();
    if (token == Selection::kNeedsDraw) token = DrawByRule(p, selection);
  }
  if (threadIdx.x != 0) return;
  p.tokens[draw + (p.first_token == nullptr ? 0 : *p.first_token)] = token;
}

__device__ void FeedToken(const FeedDrawnTokensParams& p) {
  BeginKernel();
  const int64_t token = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (token >= p.tokens) return;
  const int32_t source = p.source[token];
  if (source < 0) return;
  const TokenId drawn = p.drawn[source];
  p.token_ids[token] = drawn < 0 ? 0 : drawn;
}

}  // namespace
}  // namespace baton::sample

// Grid: [chunks, draws].
extern "C" __global__ void __launch_bounds__(baton::kSampleThreads)
    baton_sample_maxima(const __grid_constant__ baton::SampleParams p) {
  baton::sample::ScanChunk(p);
}

// Grid: [chunks, draws].
extern "C" __global__ void __launch_bounds__(baton::kSampleThreads)
    baton_sample_weights(const __grid_constant__ baton::SampleParams p) {
  baton::sample::SumChunk(p);
}

// Grid: [draws].
extern "C" __global__ void __launch_bounds__(baton::kSampleThreads)
    baton_sample_draw(const __grid_constant__ baton::SampleParams p) {
  baton::sample::DrawToken(p);
}

extern "C" __global__ void __launch_bounds__(baton::kSampleThreads)
    baton_feed_drawn_tokens(const __grid_constant__ baton::FeedDrawnTokensParams p) {
  baton::sample::FeedToken(p);
}

BATON_KERNEL(baton_sample_maxima, baton::SampleParams);
BATON_KERNEL(baton_sample_weights, baton::SampleParams);
BATON_KERNEL(baton_sample_draw, baton::SampleParams);
BATON_KERNEL(baton_feed_drawn_tokens, baton::FeedDrawnTokensParams);
