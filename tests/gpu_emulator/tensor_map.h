// Tensor maps of the emulator: what cuTensorMapEncodeTiled makes, in a form of its own.
//
// Thread safety: pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/cuda/tensor_map.h"

namespace baton::gpu_emulator {

inline constexpr int kMostTileRank = 5;

// Dimension 0 is the fastest; its elements are contiguous.
struct TiledTensor {
  const void* address = nullptr;
  uint32_t element_bytes = 0;                             // 1, 2, 4 or 8
  int rank = 0;                                           // 1 to 5
  std::array<uint64_t, kMostTileRank> sizes = {};         // elements
  std::array<uint64_t, kMostTileRank> stride_bytes = {};  // [1] and up; [0] is not used
  std::array<uint32_t, kMostTileRank> box = {};           // elements of a tile
  SharedSwizzle swizzle = SharedSwizzle::kNone;

  uint32_t box_bytes() const;
};

// Returns INVALID_ARGUMENT where the driver does (CUDA driver API, cuTensorMapEncodeTiled).
absl::StatusOr<TensorMap> EncodeTensorMap(const TiledTensor& tensor);
// Returns false if the map was not made by EncodeTensorMap.
bool DecodeTensorMap(const TensorMap& map, TiledTensor& tensor);

// Applies the swizzle to an address in shared memory.
uint32_t Swizzled(uint32_t address, SharedSwizzle swizzle);
// Bytes of a swizzle's row. REQUIRES: not kNone.
uint32_t SwizzleBytes(SharedSwizzle swizzle);

}  // namespace baton::gpu_emulator
