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

// Reads [rows, 16] elements. Returns an error message, or "".
const char* ReadMatrix(SharedBuffer& shared, uint64_t descriptor, uint32_t first_row, uint32_t rows,
                       bool rows_fastest, uint16_t* out) {
  const SharedMatrix matrix(descriptor);
  for (uint32_t row = 0; row < rows; ++row) {
    for (uint32_t k = 0; k < kProductDepth; ++k) {
      const std::byte* from =
          shared.data() + matrix.ElementOffset(first_row + row, k, rows_fastest);
      if (!shared.contains(from, sizeof(uint16_t))) {
        return "a matrix of a product lies outside of shared memory";
      }
      if (!shared.AsyncProxySees(from, sizeof(uint16_t))) {
        return "a product of shared memory that was stored to without FenceProxyAsync";
      }
      NoteRead(from, sizeof(uint16_t));
      std::memcpy(out + row * kProductDepth + k, from, sizeof(uint16_t));
    }
  }
  return "";
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

// Sums of a product in flight are NaN.
constexpr auto kHidden = static_cast<uint32_t>(kUndefined);

bool AllHidden(const float* sums, int count) {
  return std::all_of(sums, sums + count,
                     [](float x) { return std::bit_cast<uint32_t>(x) == kHidden; });
}

// A product has its values. Later ones that add to the same sums start with them.
void PassOn(WarpgroupProducts& products, uint64_t number) {
  const WarpgroupProduct& done = products.of(number);
  for (uint64_t later = number + 1; later < products.first + products.open.size(); ++later) {
    for (int thread = 0; thread < kWarpgroupThreads; ++thread) {
      ProductPart& part = products.of(later).parts[thread];
      if (part.continues != static_cast<int64_t>(number)) continue;
      part.values = done.parts[thread].values;
      part.continues = -1;
    }
  }
}

// Computes a product for all threads. Returns an error message, or "".
const char* Compute(SharedBuffer& shared, WarpgroupProduct& product) {
  const int cols = product.terms.cols;
  std::vector<uint16_t> b(cols * kProductDepth);
  const char* error =
      ReadMatrix(shared, product.terms.b, 0, cols, product.terms.b_rows_fastest, b.data());
  if (*error != '\0') return error;
  for (int warp = 0; warp < kWarpgroupThreads / kWarpLanes; ++warp) {
    uint16_t a[kWarpRows * kProductDepth];
    if (product.terms.a_in_registers) {
      ReadRegisters(product, warp, a);
    } else {
      error = ReadMatrix(shared, product.terms.a, warp * kWarpRows, kWarpRows, false, a);
      if (*error != '\0') return error;
    }
    for (int lane = 0; lane < kWarpLanes; ++lane) {
      ProductPart& part = product.parts[warp * kWarpLanes + lane];
      for (int i = 0; i < cols / 2; ++i) {
        const int row = lane / 4 + i / 2 % 2 * 8;
        const int col = i / 4 * 8 + lane % 4 * 2 + i % 2;
        part.values[i] = FusedDot(kHopperDot, product.terms.type, a + row * kProductDepth,
                                  &b[col * kProductDepth], kProductDepth,
                                  product.terms.accumulate ? part.values[i] : 0.0f);
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
  while (products.computed < end) {
    WarpgroupProduct& next = products.of(products.computed);
    if (next.issued < kWarpgroupThreads) {
      execution.Poll("a wait for matrix products that other warps have not issued", place);
      continue;
    }
    Acquire(&products);
    const char* error = Compute(execution.block().shared, next);
    if (*error != '\0') execution.Fail(error, place);
    {
      const UnrecordedAccesses unrecorded;
      PassOn(products, products.computed);
    }
    ++products.computed;
    execution.Progressed();
    Release(&products);
  }
  Acquire(&products);
}

// Of its warpgroup.
int NumberOf(const Thread& thread) {
  return thread.warp->number % (kWarpgroupThreads / kWarpLanes) * kWarpLanes + thread.lane;
}

// Gives the running thread the sums of products `begin` to `end - 1`, which are computed.
void Collect(WarpgroupProducts& products, uint64_t begin, uint64_t end, SourcePlace place) {
  const UnrecordedAccesses unrecorded;
  Execution& execution = ThisExecution();
  const Thread& me = execution.current();
  const int thread = NumberOf(me);
  for (uint64_t number = begin; number < end; ++number) {
    WarpgroupProduct& product = products.of(number);
    const ProductPart& part = product.parts[thread];
    bool continued = false;
    for (uint64_t later = number + 1; later < me.products.issued(); ++later) {
      continued |= products.of(later).parts[thread].sums == part.sums;
    }
    const int count = product.terms.cols / 2;
    if (!AllHidden(part.sums, count)) {
      execution.Fail("the sums of a product changed before its wait", place);
    }
    if (!continued) std::copy_n(part.values.begin(), count, part.sums);
    ++product.collected;
  }
  while (!products.open.empty() && products.open.front().collected == kWarpgroupThreads) {
    products.open.pop_front();
    ++products.first;
  }
}

}  // namespace

unsigned MatrixStride(unsigned stride, SourcePlace place) {
  if (stride % 16 != 0 || stride > 0x3fffu << 4) {
    ThisExecution().Fail(absl::StrCat("a matrix with a stride of ", stride,
                                      " bytes, not a multiple of 16 of at most ", 0x3fffu << 4),
                         place);
  }
  return stride;
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
  execution.RequireHopper("wgmma", place);
  WarpgroupProducts& products = ProductsOfThread(place);
  execution.Meet(kAllLanes, kIssue, nullptr, place);
  Thread& me = execution.current();
  const uint64_t number = me.products.issued();
  const char* error =
      me.products.Issue({sums, terms.cols / 2 * sizeof(float)},
                        {a_registers, a_registers == nullptr ? 0 : 4 * sizeof(unsigned)});
  if (*error != '\0') execution.Fail(error, place);
  bool agrees = true;
  {
    const UnrecordedAccesses unrecorded;
    if (number == products.first + products.open.size()) {
      products.open.push_back({terms, 0, 0, std::vector<ProductPart>(kWarpgroupThreads)});
    }
    WarpgroupProduct& product = products.of(number);
    agrees = product.terms == terms;
    ++product.issued;
    const int thread = NumberOf(me);
    ProductPart& part = product.parts[thread];
    part.sums = sums;
    if (a_registers != nullptr) std::copy_n(a_registers, 4, part.a_registers.begin());
    uint64_t earlier = number;
    while (earlier > me.products.waited() && products.of(earlier - 1).parts[thread].sums != sums) {
      --earlier;
    }
    if (earlier == me.products.waited()) {
      std::copy_n(sums, terms.cols / 2, part.values.begin());
      std::fill_n(sums, terms.cols / 2, std::bit_cast<float>(kHidden));
    } else if (earlier - 1 < products.computed) {
      part.values = products.of(earlier - 1).parts[thread].values;
    } else {
      part.continues = static_cast<int64_t>(earlier - 1);
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

void WaitProducts(uint32_t groups, NamedRegisters registers, SourcePlace place) {
  Execution& execution = ThisExecution();
  execution.Meet(kAllLanes, kWait, nullptr, place);
  PendingProducts& mine = execution.current().products;
  const uint64_t begin = mine.waited();
  const uint64_t end = mine.Before(groups);
  const char* error = mine.Wait(end, registers);
  if (*error != '\0') execution.Fail(error, place);
  if (execution.Skipped(Primitive::kMatrixWait, place)) return;
  if (end > begin) {
    ComputeUpTo(end, place);
    Collect(ProductsOfThread(place), begin, end, place);
  }
  mine.Remember(registers);
}

void FenceProducts(NamedRegisters registers, SourcePlace place) {
  Execution& execution = ThisExecution();
  execution.Meet(kAllLanes, kFence, nullptr, place);
  if (execution.Skipped(Primitive::kMatrixFence, place)) return;
  execution.current().products.Fence(registers);
}

}  // namespace baton::gpu_emulator
