// Matrix instructions of a warp: mma.sync and ldmatrix.
//
// Integer products are exact. Products of bf16 and f16 follow kernels/tensor_core/fused_dot.h, with
// the model of the tensor cores that the execution rules name. kernels/cuda/ptx.cuh describes the
// fragments.
#pragma once

#include <cstdint>

#include "tests/gpu_emulator/source_place.h"

namespace baton::gpu_emulator {

// d[4] += a[4] · b[2].
void MmaInt8K32(int* d, const unsigned* a, const unsigned* b, SourcePlace place);
void MmaInt8K16(int* d, const unsigned* a, const unsigned* b, SourcePlace place);  // a[2], b[1]
void MmaBf16K16(float* d, const unsigned* a, const unsigned* b, SourcePlace place);
void MmaF16K16(float* d, const unsigned* a, const unsigned* b, SourcePlace place);

// `matrices`: 2 or 4 results; `row`: this lane's address, of which the first 8·matrices lanes
// count.
void LoadMatrices(unsigned* results, int matrices, bool transposed, const void* row,
                  SourcePlace place);

}  // namespace baton::gpu_emulator
