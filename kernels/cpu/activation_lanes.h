// Rows of activations over Lanes (NUMERICS §3, §5): every form that is wanted, and the gate.
//
// Written once for both instruction sets: included after a vector_math header.
#pragma once

#include <cstdint>

#include "kernels/cpu/cpu_kernels.h"

namespace baton {
namespace {

// Writes every form of one row that `out` asks for. `value(i)` is elements i…i+15,
// `last(i, count)` the count < 16 elements from i on. REQUIRES: where out.q8 is wanted, cols is a
// multiple of kQuantGroup.
template <typename Value, typename Last>
inline void WriteRow(const Activations& out, int64_t token, int64_t cols, const Value& value,
                     const Last& last) {
  float* f32 = out.f32 != nullptr ? out.f32 + token * cols : nullptr;
  int64_t i = 0;
  for (; i + kQuantGroup <= cols; i += kQuantGroup) {
    const Lanes a = value(i);
    const Lanes b = value(i + kLanes);
    if (f32 != nullptr) {
      Store(f32 + i, a);
      Store(f32 + i + kLanes, b);
    }
    if (out.q8 != nullptr) {
      const int64_t group = (token * cols + i) / kQuantGroup;
      QuantizeGroup(a, b, out.q8 + token * cols + i, out.scale + group, out.scaled_sum + group);
    }
  }
  if (f32 == nullptr) return;
  if (i + kLanes <= cols) {
    Store(f32 + i, value(i));
    i += kLanes;
  }
  if (i < cols) StoreFirst(f32 + i, last(i, cols - i), cols - i);
}

inline Lanes Gate(Lanes gate, Lanes up) {
  return Multiply(Divide(gate, Add(Set(1.0f), Exp(Negate(gate)))), up);
}

// `cols` values of one row, of which `out` names the first.
inline void GateRow(const float* gate, const float* up, int64_t cols, const Activations& out) {
  WriteRow(
      out, 0, cols, [=](int64_t i) { return Gate(Load(gate + i), Load(up + i)); },
      [=](int64_t i, int64_t count) {
        return Gate(LoadFirst(gate + i, count), LoadFirst(up + i, count));
      });
}

}  // namespace
}  // namespace baton
