// Converts tensor data to float32 with the arithmetic of ggml's reference and the `gguf` package:
// widened f16 scales, one rounded product, and one rounded sum for types with a minimum. It serves
// norms, tables, tools and tests. kernels/NUMERICS.md defines the fused arithmetic of the kernels.
//
// Thread safety: pure function.
#pragma once

#include <cstddef>
#include <span>

#include "absl/status/status.h"
#include "model/gguf/gguf_types.h"

namespace baton {

// Fills `values` from `data`. InvalidArgument: the type is not loadable, or the sizes do not stand
// for the same whole number of blocks.
absl::Status Dequantize(GgmlType type, std::span<const std::byte> data, std::span<float> values);

}  // namespace baton
