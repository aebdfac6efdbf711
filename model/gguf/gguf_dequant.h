// Widens tensor data to float32, with the arithmetic of ggml's reference and the `gguf` package:
// widened f16 scales, one rounded product, for types with a minimum one rounded sum. (The kernels'
// fused arithmetic is defined in kernels/NUMERICS.md; this is for norms, tables, tools and tests.)
//
// Thread safety: pure function.
#pragma once

#include <cstddef>
#include <span>

#include "absl/status/status.h"
#include "model/gguf/gguf_types.h"

namespace baton {

// Fills `values` from `data`. InvalidArgument for a type that is not loadable, or when the sizes
// are not those of the same whole number of blocks.
absl::Status Dequantize(GgmlType type, std::span<const std::byte> data, std::span<float> values);

}  // namespace baton
