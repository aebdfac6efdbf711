// Describes a tensor in device memory whose tiles a kernel copies. KernelLauncher::EncodeTiles
// encodes it as a tensor map.
//
// Thread safety: plain data.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/cuda/tensor_map.h"

namespace baton {

inline constexpr int kMostTileRank = 5;

// Dimension 0 is the fastest; its elements are contiguous. Address and strides are multiples of 16
// bytes.
struct TiledTensor {
  const void* address = nullptr;
  uint32_t element_bytes = 0;                             // 1, 2, 4 or 8
  int rank = 0;                                           // 1 to 5
  std::array<uint64_t, kMostTileRank> sizes = {};         // elements
  std::array<uint64_t, kMostTileRank> stride_bytes = {};  // [1] and up; [0] is not used
  std::array<uint32_t, kMostTileRank> box = {};           // elements of a tile
  SharedSwizzle swizzle = SharedSwizzle::kNone;

  uint32_t box_bytes() const {
    uint32_t bytes = element_bytes;
    for (int i = 0; i < rank; ++i) bytes *= box[i];
    return bytes;
  }
};

}  // namespace baton
