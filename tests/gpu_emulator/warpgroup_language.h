// The functions of kernels/cuda/warpgroup_mma.cuh for kernels that are compiled as host C++.
#pragma once

#include <cstdint>

#include "tests/gpu_emulator/hopper_language.h"

namespace baton {

template <int kCols, bool kRowsFastest>
BATON_MEMORY_CALL void WarpgroupMmaBf16(float (&d)[kCols / 2], uint64_t a, uint64_t b,
                                        bool accumulate, BATON_PLACE) {
  gpu_emulator::IssueProduct({kCols, HalfType::kBF16, kRowsFastest, false, accumulate, a, b}, d,
                             nullptr, place);
}
template <int kCols, bool kRowsFastest>
BATON_MEMORY_CALL void WarpgroupMmaBf16(float (&d)[kCols / 2], const unsigned (&a)[4], uint64_t b,
                                        bool accumulate, BATON_PLACE) {
  gpu_emulator::IssueProduct({kCols, HalfType::kBF16, kRowsFastest, true, accumulate, 0, b}, d, a,
                             place);
}
template <int kCols, bool kRowsFastest>
BATON_MEMORY_CALL void WarpgroupMmaF16(float (&d)[kCols / 2], uint64_t a, uint64_t b,
                                       bool accumulate, BATON_PLACE) {
  gpu_emulator::IssueProduct({kCols, HalfType::kF16, kRowsFastest, false, accumulate, a, b}, d,
                             nullptr, place);
}
template <int kCols, bool kRowsFastest>
BATON_MEMORY_CALL void WarpgroupMmaF16(float (&d)[kCols / 2], const unsigned (&a)[4], uint64_t b,
                                       bool accumulate, BATON_PLACE) {
  gpu_emulator::IssueProduct({kCols, HalfType::kF16, kRowsFastest, true, accumulate, 0, b}, d, a,
                             place);
}

}  // namespace baton
