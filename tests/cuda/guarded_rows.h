// Operands of kernel tests: outputs between guards, and activations in every form.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/cuda/pack_weights.h"
#include "kernels/ops.h"
#include "tests/kernels/fast_kernels.h"
#include "tests/kernels/random_inputs.h"

namespace baton {

// An array between 64 bytes of guards on each side. 16-byte aligned.
template <typename T>
class Guarded {
 public:
  explicit Guarded(size_t count, T initial = T{}) : values_(count + 2 * kGuard, initial) {
    std::memset(values_.data(), 0xa5, 64);
    std::memset(values_.data() + kGuard + count, 0xa5, 64);
  }
  explicit Guarded(const std::vector<T>& initial) : Guarded(initial.size()) {
    std::copy(initial.begin(), initial.end(), data());
  }
  T* data() { return values_.data() + kGuard; }
  std::vector<T> values() const { return {values_.begin() + kGuard, values_.end() - kGuard}; }
  void ExpectGuards(const std::string& what) const {
    const auto* bytes = reinterpret_cast<const uint8_t*>(values_.data());
    for (size_t i = 0; i < 64; ++i) {
      ASSERT_EQ(bytes[i], 0xa5) << what << ": written before its begin";
      ASSERT_EQ(bytes[sizeof(T) * values_.size() - 1 - i], 0xa5)
          << what << ": written past its end";
    }
  }

 private:
  static constexpr size_t kGuard = 64 / sizeof(T);
  std::vector<T> values_;
};

// Output activations between guards.
struct GuardedActivations {
  GuardedActivations(int64_t tokens, int64_t cols)
      : f32(tokens * cols),
        q8(tokens * cols),
        scale(tokens * (cols / 32)),
        scaled_sum(tokens * (cols / 32)) {}
  Activations view() { return {f32.data(), q8.data(), scale.data(), scaled_sum.data()}; }

  // Compares with activations of the same shape, and checks the guards.
  void ExpectEqual(const OwnedActivations& expected, const std::string& what) const {
    ASSERT_NO_FATAL_FAILURE(ExpectSameBits(expected.f32, f32.values(), what + " f32"));
    ASSERT_EQ(expected.q8, q8.values()) << what;
    ASSERT_NO_FATAL_FAILURE(ExpectSameBits(expected.scale, scale.values(), what + " scale"));
    ASSERT_NO_FATAL_FAILURE(
        ExpectSameBits(expected.scaled_sum, scaled_sum.values(), what + " scaled sum"));
    f32.ExpectGuards(what);
    q8.ExpectGuards(what);
    scale.ExpectGuards(what);
    scaled_sum.ExpectGuards(what);
  }

  Guarded<float> f32;
  Guarded<int8_t> q8;
  Guarded<float> scale;
  Guarded<float> scaled_sum;
};

// A matrix packed for the CPU and for CUDA.
struct BothMatrices {
  BothMatrices(std::mt19937_64& random, WeightFormat format, int64_t rows, int64_t cols)
      : format(format),
        rows(rows),
        cols(cols),
        cpu(PackedMatrixBytes(format, rows, cols)),
        cuda(DeviceMatrixBytes(format, rows, cols)) {
    const auto source = RandomGgufMatrix(random, format, rows, cols);
    PackMatrixRows(format, rows, cols, source.data(), cpu.data());
    PackDeviceMatrix(format, rows, cols, source.data(), cuda.data());
  }
  PackedMatrix ForCpu() const { return {format, rows, cols, cpu.data()}; }
  PackedMatrix ForCuda() const { return {format, rows, cols, cuda.data()}; }

  WeightFormat format;
  int64_t rows;
  int64_t cols;
  ExactBytes cpu;
  ExactBytes cuda;
};

}  // namespace baton
