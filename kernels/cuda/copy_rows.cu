// Copies rows of bytes at equal distances: the KV heads of a tensor-parallel rank between its pool
// and staging memory, and the columns of a rank between its rows and the memory of a collective.
//
// Neighbouring threads copy neighbouring units of 16, 4 or 1 bytes. No thread divides inside the
// loop.
#include "kernels/cuda/copy_params.h"
#include "kernels/cuda/device_code.cuh"
#include "kernels/cuda/kernel_order.cuh"

namespace baton::copy_rows {
namespace {

template <typename Unit>
__device__ void CopySlice(const std::byte* from, std::byte* to, const ByteRows& run, int64_t slice,
                          int64_t slices) {
  const int64_t columns = run.bytes / static_cast<int64_t>(sizeof(Unit));
  const int64_t units = run.rows * columns;
  const int64_t per_slice = (units + slices - 1) / slices;
  const int64_t end = (slice + 1) * per_slice < units ? (slice + 1) * per_slice : units;
  int64_t unit = slice * per_slice + threadIdx.x;
  if (unit >= end) return;
  int64_t row = unit / columns;
  int64_t column = unit - row * columns;
  const int64_t row_step = kCopyThreads / columns;
  const int64_t column_step = kCopyThreads - row_step * columns;
  for (; unit < end; unit += kCopyThreads) {
    const int64_t offset = column * static_cast<int64_t>(sizeof(Unit));
    *reinterpret_cast<Unit*>(to + run.to + row * run.to_stride + offset) =
        *reinterpret_cast<const Unit*>(from + run.from + row * run.from_stride + offset);
    row += row_step;
    column += column_step;
    if (column < columns) continue;
    column -= columns;
    ++row;
  }
}

__device__ void CopyRows(const CopyRowsParams& p) {
  BeginKernel();
  for (int64_t item = blockIdx.x; item < p.count * p.slices; item += gridDim.x) {
    const ByteRows run = p.runs[item / p.slices];
    const int64_t slice = item % p.slices;
    const uint64_t places = reinterpret_cast<uintptr_t>(p.from + run.from) |
                            reinterpret_cast<uintptr_t>(p.to + run.to) |
                            static_cast<uint64_t>(run.from_stride | run.to_stride | run.bytes);
    if (places % 16 == 0) {
      CopySlice<uint4>(p.from, p.to, run, slice, p.slices);
    } else if (places % 4 == 0) {
      CopySlice<uint32_t>(p.from, p.to, run, slice, p.slices);
    } else {
      CopySlice<std::byte>(p.from, p.to, run, slice, p.slices);
    }
  }
}

}  // namespace
}  // namespace baton::copy_rows

extern "C" __global__ void __launch_bounds__(baton::kCopyThreads)
    baton_copy_rows(const __grid_constant__ baton::CopyRowsParams p) {
  baton::copy_rows::CopyRows(p);
}

BATON_KERNEL(baton_copy_rows, baton::CopyRowsParams);
