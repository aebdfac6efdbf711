// Converts a weight matrix from GGUF's row-major blocks to the layout of weight_layout.h, on the
// host.
//
// Thread safety: pure functions, safe together on disjoint outputs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/weight_format.h"

namespace baton {

// Returns the bytes of a packed matrix.
size_t DeviceMatrixBytes(WeightFormat format, int64_t rows, int64_t cols);
// Rows of a tile: matrices may be packed in parts that begin at a multiple of it.
int64_t DeviceTileRows(WeightFormat format);
// Packs `source` (rows in GGUF's blocks) into `destination`, which has DeviceMatrixBytes bytes and
// may have any contents. REQUIRES: cols is a multiple of BlockColumns(format).
void PackDeviceMatrix(WeightFormat format, int64_t rows, int64_t cols, const std::byte* source,
                      std::byte* destination);

}  // namespace baton
