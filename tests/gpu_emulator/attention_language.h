// The functions of kernels/cuda/attention_mma.cuh for kernels that are compiled as host C++.
#pragma once

#include <cstdint>

#include "tests/gpu_emulator/hopper_language.h"

namespace baton {

BATON_MEMORY_CALL void WarpgroupScoresBf16(float (&d)[8][4], const unsigned (&a)[4], uint64_t b,
                                           bool accumulate, BATON_PLACE) {
  gpu_emulator::IssueProduct({64, HalfType::kBF16, false, true, accumulate, 0, b}, d[0], a, place);
}
BATON_MEMORY_CALL void WarpgroupScoresF16(float (&d)[8][4], const unsigned (&a)[4], uint64_t b,
                                          bool accumulate, BATON_PLACE) {
  gpu_emulator::IssueProduct({64, HalfType::kF16, false, true, accumulate, 0, b}, d[0], a, place);
}
template <int kTiles>
BATON_MEMORY_CALL void WarpgroupValuesBf16(float (&d)[kTiles][4], const unsigned (&a)[4],
                                           uint64_t b, bool accumulate, BATON_PLACE) {
  gpu_emulator::IssueProduct({8 * kTiles, HalfType::kBF16, true, true, accumulate, 0, b}, d[0], a,
                             place);
}
template <int kTiles>
BATON_MEMORY_CALL void WarpgroupValuesF16(float (&d)[kTiles][4], const unsigned (&a)[4], uint64_t b,
                                          bool accumulate, BATON_PLACE) {
  gpu_emulator::IssueProduct({8 * kTiles, HalfType::kF16, true, true, accumulate, 0, b}, d[0], a,
                             place);
}

}  // namespace baton
