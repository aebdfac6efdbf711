// wgmma: asynchronous matrix products of a warpgroup, m64nNk16 with bf16 or f16 operands.
//
// A product is computed for the whole warpgroup, when all of its threads have issued it and the
// first waits for it. A late product reads shared memory at that time. Until a thread has waited
// for all products that add to its sums, the sums are NaN, so that an early use shows. Changing
// them is an error. kernels/cuda/hopper.cuh describes operands.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "kernels/tensor_core/fused_dot.h"
#include "tests/gpu_emulator/pending_products.h"
#include "tests/gpu_emulator/source_place.h"

namespace baton::gpu_emulator {

inline constexpr int kWarpgroupThreads = 128;
inline constexpr int kMostProductCols = 256;

// Parameters that must be equal in all threads of a warpgroup.
struct ProductTerms {
  int cols = 0;
  HalfType type = HalfType::kBF16;
  bool b_rows_fastest = false;
  bool a_in_registers = false;
  bool accumulate = false;
  uint64_t a = 0;  // descriptor, unless in registers
  uint64_t b = 0;  // descriptor

  bool operator==(const ProductTerms&) const = default;
};

// Operands and sums of one thread.
struct ProductPart {
  float* sums = nullptr;   // [cols / 2]
  int64_t continues = -1;  // number of the product that gives the values, if it is not computed yet
  std::array<float, kMostProductCols / 2> values;  // of the sums, before or after the product
  std::array<unsigned, 4> a_registers = {};
};

struct WarpgroupProduct {
  ProductTerms terms;
  int issued = 0;                  // threads
  int collected = 0;               // threads that have their sums
  std::vector<ProductPart> parts;  // by thread
};

// The products of one warpgroup for which not all threads have waited.
struct WarpgroupProducts {
  uint64_t first = 0;  // number of the first product in `open`
  uint64_t computed = 0;
  std::deque<WarpgroupProduct> open;

  WarpgroupProduct& of(uint64_t number) { return open[number - first]; }
};

// a_registers: four, or null.
void IssueProduct(const ProductTerms& terms, float* sums, const unsigned* a_registers,
                  SourcePlace place);
void CommitProducts(SourcePlace place);
void WaitProducts(uint32_t groups, NamedRegisters registers, SourcePlace place);
void FenceProducts(NamedRegisters registers, SourcePlace place);

// Checks a stride in bytes of a descriptor and returns it.
unsigned MatrixStride(unsigned stride, SourcePlace place);
// An address as descriptors name it: bytes from the start of shared memory.
uint32_t SharedOffset(const void* shared, SourcePlace place);

}  // namespace baton::gpu_emulator
