// Writes rows of activations over Lanes (NUMERICS §3, §5) in every requested form, and computes the
// gate.
//
// The code serves AVX2 and AVX-512: other headers and files include it after a vector_math
// header.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/unroll.h"

namespace baton {
namespace {

// A number of registers as a compile-time constant; see WriteRow.
template <int kCount>
using Registers = std::integral_constant<int, kCount>;

// Writes one row in every form that `out` requests. values(i, registers, to) sets that many
// registers of `to` to the elements from i on. last(i, count) returns the last count < 16 elements,
// from i on. REQUIRES: if out.q8 is not null, cols is a multiple of kQuantGroup.
template <typename Values, typename Last>
inline void WriteRow(const Activations& out, int64_t token, int64_t cols, const Values& values,
                     const Last& last) {
  float* f32 = out.f32 != nullptr ? out.f32 + token * cols : nullptr;
  int64_t i = 0;
  const auto write = [&](auto groups) __attribute__((always_inline)) {
    constexpr int kGroups = decltype(groups)::value;
    constexpr int kCount = kGroups * kQuantGroup / kLanes;
    for (; i + kGroups * kQuantGroup <= cols; i += kGroups * kQuantGroup) {
      Lanes a[kCount];
      values(i, Registers<kCount>(), a);
      if (f32 != nullptr) {
        Unroll<kCount>([&](int k)
                           __attribute__((always_inline)) { Store(f32 + i + k * kLanes, a[k]); });
      }
      if (out.q8 != nullptr) {
        const int64_t group = (token * cols + i) / kQuantGroup;
        QuantizeGroups<kGroups>(a, out.q8 + token * cols + i, out.scale + group,
                                out.scaled_sum + group);
      }
    }
  };
  write(std::integral_constant<int, kGroupsAtOnce>());
  if constexpr (kGroupsAtOnce > 1) write(std::integral_constant<int, 1>());
  if (f32 == nullptr) return;
  if (i + kLanes <= cols) {
    Lanes a;
    values(i, Registers<1>(), &a);
    Store(f32 + i, a);
    i += kLanes;
  }
  if (i < cols) StoreFirst(f32 + i, last(i, cols - i), cols - i);
}

template <int kCount>
[[gnu::always_inline]] inline void Gate(const Lanes* gate, const Lanes* up, Lanes* out) {
  Lanes e[kCount];
  Unroll<kCount>([&](int k) __attribute__((always_inline)) { e[k] = Negate(gate[k]); });
  ExpOfAll<kCount>(e, e);
  Unroll<kCount>([&](int k) __attribute__((always_inline)) {
    out[k] = Multiply(Divide(gate[k], Add(Set(1.0f), e[k])), up[k]);
  });
}

// Gates `cols` values of one row. `out` points to the row's first value.
inline void GateRow(const float* gate, const float* up, int64_t cols, const Activations& out) {
  WriteRow(
      out, 0, cols,
      [=](int64_t i, auto registers, Lanes* to) __attribute__((always_inline)) {
        constexpr int kCount = decltype(registers)::value;
        Lanes g[kCount];
        Lanes u[kCount];
        Unroll<kCount>([&](int k) __attribute__((always_inline)) {
          g[k] = Load(gate + i + k * kLanes);
          u[k] = Load(up + i + k * kLanes);
        });
        Gate<kCount>(g, u, to);
      },
      [=](int64_t i, int64_t count) {
        const Lanes g = LoadFirst(gate + i, count);
        const Lanes u = LoadFirst(up + i, count);
        Lanes out;
        Gate<1>(&g, &u, &out);
        return out;
      });
}

}  // namespace
}  // namespace baton
