// Tensor maps of the emulator. cuTensorMapEncodeTiled makes them, in the emulator's own encoding.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/cuda/tensor_map.h"
#include "kernels/cuda/tiled_tensor.h"

namespace baton::gpu_emulator {

using baton::kMostTileRank;
using baton::TiledTensor;

// Returns INVALID_ARGUMENT where the driver does (CUDA driver API, cuTensorMapEncodeTiled).
absl::StatusOr<TensorMap> EncodeTensorMap(const TiledTensor& tensor);
// Returns false if the map was not made by EncodeTensorMap.
bool DecodeTensorMap(const TensorMap& map, TiledTensor& tensor);

// Applies the swizzle to an address in shared memory.
uint32_t Swizzled(uint32_t address, SharedSwizzle swizzle);
// Bytes of a swizzle's row. REQUIRES: not kNone.
uint32_t SwizzleBytes(SharedSwizzle swizzle);

}  // namespace baton::gpu_emulator
