// Functions that every launch needs: sizes of grids, checks, and conversions to the types of kernel
// parameters.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/strings/ascii.h"
#include "common/check.h"
#include "kernels/cuda/activation_params.h"
#include "kernels/ops.h"

namespace baton {

inline int64_t BlocksFor(int64_t count, int64_t per_block) {
  return (count + per_block - 1) / per_block;
}

// Rows and columns of one op are 32-bit in kernels. REQUIRES: the value fits.
inline int32_t KernelSize(int64_t value) {
  CHECK(value >= 0 && value <= INT32_MAX) << "a size of " << value << " is past 2^31 - 1";
  return static_cast<int32_t>(value);
}

// Checks that `memory` is aligned to 16 bytes, because kernels read it by vectors and bulk copies
// of 16 bytes.
inline void CheckAligned16(std::string_view what, const void* memory) {
  CHECK_EQ(reinterpret_cast<uintptr_t>(memory) % 16, 0u)
      << what << " at " << memory << " are not aligned to 16 bytes";
}

inline ActivationParams KernelActivations(const Activations& x) {
  return {x.f32, x.q8, x.scale, x.scaled_sum};
}

// Returns the name of a kernel that exists once per format.
inline std::string KernelName(std::string_view prefix, WeightFormat format) {
  std::string name(prefix);
  for (const char letter : WeightFormatName(format)) name += absl::ascii_tolower(letter);
  return name;
}

}  // namespace baton
