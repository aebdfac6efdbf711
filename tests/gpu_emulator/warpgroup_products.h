// wgmma: asynchronous matrix products of a warpgroup, m64nNk16 with bf16 or f16 operands.
//
// A product is computed for the whole warpgroup, when the first of its threads waits for it and all
// have issued it. A late product reads shared memory then. Until a thread has waited, its sums are
// NaN, so that an early use of them shows. kernels/cuda/hopper.cuh describes operands.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "kernels/tensor_core/fused_dot.h"
#include "tests/gpu_emulator/source_place.h"

namespace baton::gpu_emulator {

inline constexpr int kWarpgroupThreads = 128;
inline constexpr int kMostProductCols = 256;

// What all threads of a warpgroup must agree on.
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

// What one thread gives to a product.
struct ProductPart {
  float* sums = nullptr;  // [cols / 2]
  bool restores = false;  // `start` is what the sums were
  std::array<float, kMostProductCols / 2> start;
  std::array<unsigned, 4> a_registers = {};
};

struct WarpgroupProduct {
  ProductTerms terms;
  int issued = 0;                  // threads
  std::vector<ProductPart> parts;  // by thread
};

// The products of one warpgroup that are not computed yet.
struct WarpgroupProducts {
  uint64_t done = 0;  // number of the first product in `open`
  std::deque<WarpgroupProduct> open;
};

// One thread's view.
class PendingProducts {
 public:
  uint64_t issued() const { return issued_; }
  uint64_t waited() const { return waited_; }
  uint64_t Issue() { return issued_++; }
  void Commit() { groups_.push_back(issued_); }
  // Returns the number of products that are in all but the newest `groups` groups.
  uint64_t Before(uint32_t groups) const;
  void Waited(uint64_t products) { waited_ = products > waited_ ? products : waited_; }

 private:
  uint64_t issued_ = 0;
  uint64_t waited_ = 0;
  std::vector<uint64_t> groups_;  // products issued before each commit
};

// a_registers: four, or null.
void IssueProduct(const ProductTerms& terms, float* sums, const unsigned* a_registers,
                  SourcePlace place);
void CommitProducts(SourcePlace place);
void WaitProducts(uint32_t groups, SourcePlace place);
void FenceProducts(SourcePlace place);

// An address as descriptors name it: bytes from the start of shared memory.
uint32_t SharedOffset(const void* shared, SourcePlace place);

}  // namespace baton::gpu_emulator
