// The functions of kernels/cuda/attention_mma.cuh for kernels that are compiled as host C++.
#pragma once

#include <cstdint>

#include "tests/gpu_emulator/hopper_language.h"

namespace baton {

template <bool kBF16>
BATON_MEMORY_CALL void WarpgroupScores(float (&d)[8][4], const unsigned (&a)[4], uint64_t b,
                                       bool accumulate, BATON_PLACE) {
  constexpr HalfType kType = kBF16 ? HalfType::kBF16 : HalfType::kF16;
  gpu_emulator::IssueProduct({64, kType, false, true, accumulate, 0, b}, d[0], a, place);
}
template <bool kBF16, int kTiles>
BATON_MEMORY_CALL void WarpgroupValues(float (&d)[kTiles][4], const unsigned (&a)[4], uint64_t b,
                                       bool accumulate, BATON_PLACE) {
  constexpr HalfType kType = kBF16 ? HalfType::kBF16 : HalfType::kF16;
  gpu_emulator::IssueProduct({8 * kTiles, kType, true, true, accumulate, 0, b}, d[0], a, place);
}

}  // namespace baton
