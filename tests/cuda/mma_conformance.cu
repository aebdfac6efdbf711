// One mma.sync for each warp, with operands and results in global memory. Not for speed: the test
// compares the results with the emulator's bit model.
#include "kernels/cuda/device_code.cuh"
#include "kernels/cuda/kernel_order.cuh"
#include "kernels/cuda/ptx.cuh"
#include "tests/cuda/mma_conformance_params.h"

namespace baton {
namespace {

constexpr int kWarps = 4;
constexpr int kTileThreads = 32 * kWarps;
constexpr int kHalfDepth = 16;
constexpr int kByteDepth = 32;

// The tile of the calling warp.
__device__ __forceinline__ int64_t Tile() {
  return static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
}

__device__ __forceinline__ unsigned Word(const void* bytes) {
  return *static_cast<const unsigned*>(bytes);
}

// Loads the fragments of kernels/cuda/ptx.cuh from rows of 32 bytes, and calls
// product(d, a, b) on the results' places.
template <typename Element, typename Sum, int kDepth, typename Product>
__device__ __forceinline__ void RunTile(const Element* a, const Element* b, const Sum* c, Sum* d,
                                        int64_t tile, const Product& product) {
  const int group = static_cast<int>(threadIdx.x) % 32 / 4;
  const int pair = static_cast<int>(threadIdx.x) % 4;
  constexpr int kInWord = 4 / static_cast<int>(sizeof(Element));
  a += tile * 16 * kDepth + group * kDepth + pair * kInWord;
  b += tile * 8 * kDepth + group * kDepth + pair * kInWord;
  const unsigned of_a[4] = {Word(a), Word(a + 8 * kDepth), Word(a + kDepth / 2),
                            Word(a + 8 * kDepth + kDepth / 2)};
  const unsigned of_b[2] = {Word(b), Word(b + kDepth / 2)};
  const int64_t first = tile * 128 + group * 8 + pair * 2;
  Sum sums[4] = {c[first], c[first + 1], c[first + 64], c[first + 65]};
  product(sums, of_a, of_b);
  d[first] = sums[0];
  d[first + 1] = sums[1];
  d[first + 64] = sums[2];
  d[first + 65] = sums[3];
}

}  // namespace

// Grid: [ceil(tiles / 4)].
extern "C" __global__ void __launch_bounds__(kTileThreads)
    baton_conformance_bf16(const __grid_constant__ HalfTilesParams p) {
  BeginKernel();
  const int64_t tile = Tile();
  if (tile >= p.tiles) return;
  RunTile<uint16_t, float, kHalfDepth>(
      p.a, p.b, p.c, p.d, tile,
      [](float(&d)[4], const unsigned(&a)[4], const unsigned(&b)[2]) { MmaM16N8K16Bf16(d, a, b); });
}
BATON_KERNEL(baton_conformance_bf16, HalfTilesParams);

extern "C" __global__ void __launch_bounds__(kTileThreads)
    baton_conformance_f16(const __grid_constant__ HalfTilesParams p) {
  BeginKernel();
  const int64_t tile = Tile();
  if (tile >= p.tiles) return;
  RunTile<uint16_t, float, kHalfDepth>(
      p.a, p.b, p.c, p.d, tile,
      [](float(&d)[4], const unsigned(&a)[4], const unsigned(&b)[2]) { MmaM16N8K16F16(d, a, b); });
}
BATON_KERNEL(baton_conformance_f16, HalfTilesParams);

extern "C" __global__ void __launch_bounds__(kTileThreads)
    baton_conformance_s8(const __grid_constant__ ByteTilesParams p) {
  BeginKernel();
  const int64_t tile = Tile();
  if (tile >= p.tiles) return;
  RunTile<int8_t, int32_t, kByteDepth>(
      p.a, p.b, p.c, p.d, tile,
      [](int(&d)[4], const unsigned(&a)[4], const unsigned(&b)[2]) { MmaM16N8K32S8(d, a, b); });
}
BATON_KERNEL(baton_conformance_s8, ByteTilesParams);

}  // namespace baton
