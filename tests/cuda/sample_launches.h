// Launches of the sample kernels with inputs of odd shapes, and checks of their results.
#pragma once

#include <glog/logging.h>

#include <cstdint>
#include <numeric>
#include <random>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "kernels/tensor_core/fused_dot.h"
#include "tests/cuda/sample_hopper_params.h"
#include "tests/cuda/sample_kernels_params.h"
#include "tests/gpu_emulator/executor.h"
#include "tests/gpu_emulator/kernel_registry.h"
#include "tests/gpu_emulator/tensor_map.h"

namespace baton {

template <typename Params>
absl::Status LaunchSample(gpu_emulator::Executor& executor, std::string_view name,
                          const LaunchShape& shape, const Params& params) {
  const gpu_emulator::Kernel* kernel = gpu_emulator::FindKernel(name);
  CHECK(kernel != nullptr) << name;
  const gpu_emulator::EarlyStart early;
  return executor.Run(*kernel, shape, &params, sizeof(params), &early);
}

// Each function returns OK if the kernel kept the rules of CUDA and its result is right.

inline absl::Status RunSampleSum(gpu_emulator::Executor& executor) {
  std::vector<int> values(1013);
  std::iota(values.begin(), values.end(), -100);
  std::vector<int> partials(5);
  unsigned arrivals = 0;
  int sum = 0;
  const absl::Status status =
      LaunchSample(executor, "baton_sample_sum", {{5, 1, 1}, {96, 1, 1}, 4 * sizeof(int)},
                   SampleSumParams{values.data(), static_cast<int>(values.size()), partials.data(),
                                   &arrivals, &sum});
  if (!status.ok()) return status;
  if (sum != std::accumulate(values.begin(), values.end(), 0)) {
    return absl::DataLossError("the sum is wrong");
  }
  return absl::OkStatus();
}

inline absl::Status RunSampleTranspose(gpu_emulator::Executor& executor) {
  constexpr int kRows = 45, kCols = 67;
  std::vector<float> from(kRows * kCols), to(kRows * kCols);
  std::iota(from.begin(), from.end(), 0.0f);
  const absl::Status status = LaunchSample(
      executor, "baton_sample_transpose", {{3, 2, 1}, {32, 8, 1}, 32 * 33 * sizeof(float)},
      SampleTransposeParams{from.data(), to.data(), kRows, kCols});
  if (!status.ok()) return status;
  for (int row = 0; row < kRows; ++row) {
    for (int col = 0; col < kCols; ++col) {
      if (to[col * kRows + row] != from[row * kCols + col]) {
        return absl::DataLossError("the transposed matrix is wrong");
      }
    }
  }
  return absl::OkStatus();
}

inline absl::Status RunSampleMatMul(gpu_emulator::Executor& executor) {
  constexpr int kRows = 21, kCols = 16, kDepth = 160;
  std::mt19937 random(3);
  struct alignas(16) Vector {
    int8_t bytes[16];
  };
  std::vector<Vector> a_vectors(kRows * kDepth / 16), b_vectors(kCols * kDepth / 16);
  int8_t* a = a_vectors[0].bytes;
  int8_t* b = b_vectors[0].bytes;
  for (int i = 0; i < kRows * kDepth; ++i) a[i] = static_cast<int8_t>(random());
  for (int i = 0; i < kCols * kDepth; ++i) b[i] = static_cast<int8_t>(random());
  std::vector<int> c(kRows * kCols, -1);
  const absl::Status status =
      LaunchSample(executor, "baton_sample_matmul", {{kCols / 8, 2, 1}, {32, 1, 1}, 3 * 24 * 32},
                   SampleMatMulParams{a, b, c.data(), kRows, kCols, kDepth});
  if (!status.ok()) return status;
  for (int row = 0; row < kRows; ++row) {
    for (int col = 0; col < kCols; ++col) {
      int want = 0;
      for (int k = 0; k < kDepth; ++k) want += a[row * kDepth + k] * b[col * kDepth + k];
      if (c[row * kCols + col] != want) return absl::DataLossError("the product is wrong");
    }
  }
  return absl::OkStatus();
}

// Compares with a chain of steps of the bit model. Rows, columns and depth are no multiples of 64.
inline absl::Status RunSampleTileMatMul(gpu_emulator::Executor& executor) {
  constexpr int kRows = 70, kCols = 72, kDepth = 200;
  struct alignas(16) Chunk {
    uint16_t elements[8];
  };
  std::mt19937 random(5);
  const auto fill = [&](int rows) {
    std::vector<Chunk> chunks(rows * kDepth / 8);
    for (Chunk& chunk : chunks) {
      for (uint16_t& x : chunk.elements) x = static_cast<uint16_t>(0x3c00 + (random() & 0x83ff));
    }
    return chunks;
  };
  const std::vector<Chunk> a = fill(kRows), b = fill(kCols);
  const auto map = [](const std::vector<Chunk>& chunks, int rows) {
    gpu_emulator::TiledTensor tensor;
    tensor.address = chunks.data();
    tensor.element_bytes = 2;
    tensor.rank = 2;
    tensor.sizes = {kDepth, static_cast<uint64_t>(rows)};
    tensor.stride_bytes = {0, kDepth * 2};
    tensor.box = {64, 64};
    tensor.swizzle = SharedSwizzle::k128Bytes;
    return gpu_emulator::EncodeTensorMap(tensor).value();
  };
  std::vector<float> c(kRows * kCols, -1.0f);
  const absl::Status status = LaunchSample(
      executor, "baton_sample_tile_matmul", {{2, 2, 1}, {160, 1, 1}, 2 * 16384 + 64},
      SampleTileMatMulParams{map(a, kRows), map(b, kCols), c.data(), kRows, kCols, kDepth});
  if (!status.ok()) return status;
  for (int row = 0; row < kRows; ++row) {
    for (int col = 0; col < kCols; ++col) {
      const float want = FusedDot(kHopperDot, HalfType::kBF16, a[row * kDepth / 8].elements,
                                  b[col * kDepth / 8].elements, kDepth, 0.0f);
      if (c[row * kCols + col] != want) return absl::DataLossError("the product is wrong");
    }
  }
  return absl::OkStatus();
}

}  // namespace baton
