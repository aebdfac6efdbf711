#include "tests/gpu_emulator/warpgroup_products.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "tests/gpu_emulator/execution.h"
#include "tests/gpu_emulator/sanitizers.h"
#include "tests/gpu_emulator/tensor_map.h"
#include "tests/gpu_emulator/warp_operations.h"

namespace baton::gpu_emulator {
namespace {

constexpr int kProductDepth = 16;
constexpr int kWarpRows = 16;

// A matrix in shared memory, as a descriptor of wgmma names it (PTX ISA, "Matrix Descriptor
// Format").
struct SharedMatrix {
  explicit SharedMatrix(uint64_t descriptor)
      : start(static_cast<uint32_t>(descriptor & 0x3fff) << 4),
        leading(static_cast<uint32_t>(descriptor >> 16 & 0x3fff) << 4),
        stride(static_cast<uint32_t>(descriptor >> 32 & 0x3fff) << 4) {
    const auto mode = static_cast<uint32_t>(descriptor >> 62);
    swizzle = static_cast<SharedSwizzle>(mode == 0 ? 0 : 4 - mode);
  }

  // Offset of an element of 2 bytes in shared memory.
  uint32_t ElementOffset(uint32_t row, uint32_t k, bool rows_fastest) const {
    uint32_t offset = 0;
    if (swizzle == SharedSwizzle::kNone) {
      offset = rows_fastest ? 2 * (row % 8) + row / 8 * stride + k % 8 * 16 + k / 8 * leading
                            : row % 8 * 16 + row / 8 * stride + 2 * (k % 8) + k / 8 * leading;
    } else {
      const uint32_t bytes = SwizzleBytes(swizzle);
      const uint32_t wide = bytes / 2;
      offset = rows_fastest
                   ? 2 * (row % wide) + row / wide * leading + k % 8 * bytes + k / 8 * stride
                   : row % 8 * bytes + row / 8 * stride + 2 * k;
    }
    return Swizzled(start + offset, swizzle);
  }

  uint32_t start, leading, stride;
  SharedSwizzle swizzle;
};

// Reads [rows, 16] elements. Returns false if one lies outside of shared memory.
bool ReadMatrix(const SharedBuffer& shared, uint64_t descriptor, uint32_t first_row, uint32_t rows,
                bool rows_fastest, uint16_t* out) {
  const SharedMatrix matrix(descriptor);
  for (uint32_t row = 0; row < rows; ++row) {
    for (uint32_t k = 0; k < kProductDepth; ++k) {
      const std::byte* from =
          shared.data() + matrix.ElementOffset(first_row + row, k, rows_fastest);
      if (!shared.contains(from, sizeof(uint16_t))) return false;
      NoteRead(from, sizeof(uint16_t));
      std::memcpy(out + row * kProductDepth + k, from, sizeof(uint16_t));
    }
  }
  return true;
}

// Rows of A that warp `warp` has, from its lanes' registers (as m16n8k16's).
void ReadRegisters(const WarpgroupProduct& product, int warp, uint16_t* out) {
  for (int lane = 0; lane < kWarpLanes; ++lane) {
    const auto& registers = product.parts[warp * kWarpLanes + lane].a_registers;
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + i % 2 * 8;
      const int col = lane % 4 * 2 + i / 2 * 8;
      std::memcpy(out + row * kProductDepth + col, &registers[i], sizeof(unsigned));
    }
  }
}

// Computes a product for all threads. Returns an error message, or "".
const char* Compute(const Execution& execution, const SharedBuffer& shared,
                    WarpgroupProduct& product) {
  const int cols = product.terms.cols;
  std::vector<uint16_t> b(cols * kProductDepth);
  if (!ReadMatrix(shared, product.terms.b, 0, cols, product.terms.b_rows_fastest, b.data())) {
    return "matrix b of a product lies outside of shared memory";
  }
  const DotModel& model =
      execution.rules().tensor_core == TensorCore::kHopper ? kHopperDot : kAmpereDot;
  for (int warp = 0; warp < kWarpgroupThreads / kWarpLanes; ++warp) {
    uint16_t a[kWarpRows * kProductDepth];
    if (product.terms.a_in_registers) {
      ReadRegisters(product, warp, a);
    } else if (!ReadMatrix(shared, product.terms.a, warp * kWarpRows, kWarpRows, false, a)) {
      return "matrix a of a product lies outside of shared memory";
    }
    const UnrecordedAccesses unrecorded;  // the sums belong to other threads
    for (int lane = 0; lane < kWarpLanes; ++lane) {
      ProductPart& part = product.parts[warp * kWarpLanes + lane];
      if (part.restores) std::copy_n(part.start.begin(), cols / 2, part.sums);
      for (int i = 0; i < cols / 2; ++i) {
        const int row = lane / 4 + i / 2 % 2 * 8;
        const int col = i / 4 * 8 + lane % 4 * 2 + i % 2;
        part.sums[i] =
            FusedDot(model, product.terms.type, a + row * kProductDepth, &b[col * kProductDepth],
                     kProductDepth, product.terms.accumulate ? part.sums[i] : 0.0f);
      }
    }
  }
  return "";
}

// Lanes of a warp must issue and wait at the same place.
constexpr WarpOperation kIssue = {"a matrix product of a warpgroup", nullptr};
constexpr WarpOperation kWait = {"a wait for matrix products", nullptr};
constexpr WarpOperation kCommit = {"a commit of matrix products", nullptr};
constexpr WarpOperation kFence = {"a fence of matrix registers", nullptr};

WarpgroupProducts& ProductsOfThread(SourcePlace place) {
  Execution& execution = ThisExecution();
  const size_t warpgroup = execution.current().warp->number / (kWarpgroupThreads / kWarpLanes);
  if (warpgroup >= execution.block().products.size()) {
    execution.Fail("a matrix product outside of a whole warpgroup", place);
  }
  return execution.block().products[warpgroup];
}

// Computes products up to number `end`, once all threads have issued them.
void ComputeUpTo(uint64_t end, SourcePlace place) {
  Execution& execution = ThisExecution();
  WarpgroupProducts& products = ProductsOfThread(place);
  while (products.done < end) {
    if (products.open.front().issued < kWarpgroupThreads) {
      execution.Poll("a wait for matrix products that other warps have not issued", place);
      continue;
    }
    Acquire(&products);
    const char* error = "";
    {
      error = Compute(execution, execution.block().shared, products.open.front());
      const UnrecordedAccesses unrecorded;
      products.open.pop_front();
    }
    if (*error != '\0') execution.Fail(error, place);
    ++products.done;
    execution.Progressed();
    Release(&products);
  }
  Acquire(&products);
}

}  // namespace

uint64_t PendingProducts::Before(uint32_t groups) const {
  return groups >= groups_.size() ? 0 : groups_[groups_.size() - 1 - groups];
}

uint32_t SharedOffset(const void* shared, SourcePlace place) {
  Execution& execution = ThisExecution();
  execution.CheckShared(shared, 1, "a matrix", place);
  return static_cast<uint32_t>(static_cast<const std::byte*>(shared) -
                               execution.block().shared.data());
}

void IssueProduct(const ProductTerms& terms, float* sums, const unsigned* a_registers,
                  SourcePlace place) {
  Execution& execution = ThisExecution();
  WarpgroupProducts& products = ProductsOfThread(place);
  execution.Meet(kAllLanes, kIssue, nullptr, place);
  Thread& me = execution.current();
  const uint64_t number = me.products.Issue();
  bool agrees = true;
  {
    const UnrecordedAccesses unrecorded;
    const size_t index = number - products.done;
    if (index == products.open.size()) {
      products.open.push_back({terms, 0, std::vector<ProductPart>(kWarpgroupThreads)});
    }
    WarpgroupProduct& product = products.open[index];
    agrees = product.terms == terms;
    ++product.issued;
    const int thread = me.warp->number % (kWarpgroupThreads / kWarpLanes) * kWarpLanes + me.lane;
    ProductPart& part = product.parts[thread];
    part.sums = sums;
    if (a_registers != nullptr) std::copy_n(a_registers, 4, part.a_registers.begin());
    // An earlier product that is not computed yet has these sums already.
    part.restores = true;
    for (size_t i = 0; i < index; ++i) {
      part.restores &= products.open[i].parts[thread].sums != sums;
    }
    if (part.restores) {
      std::copy_n(sums, terms.cols / 2, part.start.begin());
      std::fill_n(sums, terms.cols / 2, std::bit_cast<float>(static_cast<uint32_t>(kUndefined)));
    }
  }
  if (!agrees) execution.Fail("threads of a warpgroup issue different matrix products", place);
  Release(&products);
  if (execution.LandsEarly()) ComputeUpTo(number + 1, place);
}

void CommitProducts(SourcePlace place) {
  Execution& execution = ThisExecution();
  execution.Meet(kAllLanes, kCommit, nullptr, place);
  execution.current().products.Commit();
}

void WaitProducts(uint32_t groups, SourcePlace place) {
  Execution& execution = ThisExecution();
  execution.Meet(kAllLanes, kWait, nullptr, place);
  const uint64_t end = execution.current().products.Before(groups);
  execution.current().products.Waited(end);
  if (execution.Skipped(Primitive::kMatrixWait, place)) return;
  if (end > 0) ComputeUpTo(end, place);
}

void FenceProducts(SourcePlace place) { ThisExecution().Meet(kAllLanes, kFence, nullptr, place); }

}  // namespace baton::gpu_emulator
