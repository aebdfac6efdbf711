// CUDA's atomic functions and loads with cache hints. Part of device_language.h.
//
// Atomic operations are relaxed, as in CUDA. ThreadSanitizer sees them as such.
#pragma once

#include <cstdint>
#include <cstring>

#include "tests/gpu_emulator/sanitizers.h"
#include "tests/gpu_emulator/source_place.h"
#include "tests/gpu_emulator/warp_operations.h"

namespace baton::gpu_emulator {

// Applies `change` to *address at once and returns the old value.
template <typename T, typename Change>
T ChangeAtomically(T* address, const char* name, SourcePlace place, Change change) {
  BeforeAtomic(address, sizeof(T), name, place);
  T old;
  __atomic_load(address, &old, __ATOMIC_RELAXED);
  T changed = change(old);
  while (!__atomic_compare_exchange(address, &old, &changed, false, __ATOMIC_RELAXED,
                                    __ATOMIC_RELAXED)) {
    changed = change(old);
  }
  AfterAtomic(address);
  return old;
}

}  // namespace baton::gpu_emulator

#define BATON_ATOMIC(name, Type, expression)                                                  \
  inline Type name(                                                                           \
      Type* address, Type value,                                                              \
      baton::gpu_emulator::SourcePlace place = baton::gpu_emulator::SourcePlace::Current()) { \
    return baton::gpu_emulator::ChangeAtomically(                                             \
        address, #name, place,                                                                \
        [value]([[maybe_unused]] Type old) { return static_cast<Type>(expression); });        \
  }
#define BATON_ATOMIC_INTEGERS(name, expression) \
  BATON_ATOMIC(name, int, expression)           \
  BATON_ATOMIC(name, unsigned, expression)      \
  BATON_ATOMIC(name, unsigned long long, expression)

BATON_ATOMIC(atomicAdd, int, static_cast<unsigned>(old) + static_cast<unsigned>(value))
BATON_ATOMIC(atomicAdd, unsigned, old + value)
BATON_ATOMIC(atomicAdd, unsigned long long, old + value)
BATON_ATOMIC(atomicAdd, float, old + value)
BATON_ATOMIC(atomicAdd, double, old + value)
BATON_ATOMIC(atomicSub, int, static_cast<unsigned>(old) - static_cast<unsigned>(value))
BATON_ATOMIC(atomicSub, unsigned, old - value)
BATON_ATOMIC_INTEGERS(atomicMax, old > value ? old : value)
BATON_ATOMIC(atomicMax, long long, old > value ? old : value)
BATON_ATOMIC_INTEGERS(atomicMin, old < value ? old : value)
BATON_ATOMIC(atomicMin, long long, old < value ? old : value)
BATON_ATOMIC_INTEGERS(atomicExch, value)
BATON_ATOMIC(atomicExch, float, value)
BATON_ATOMIC_INTEGERS(atomicAnd, old& value)
BATON_ATOMIC_INTEGERS(atomicOr, old | value)
BATON_ATOMIC_INTEGERS(atomicXor, old ^ value)
BATON_ATOMIC(atomicInc, unsigned, old >= value ? 0 : old + 1)
BATON_ATOMIC(atomicDec, unsigned, old == 0 || old > value ? value : old - 1)
#undef BATON_ATOMIC_INTEGERS
#undef BATON_ATOMIC

template <typename T>
T atomicCAS(T* address, T expected, T value,
            baton::gpu_emulator::SourcePlace place = baton::gpu_emulator::SourcePlace::Current()) {
  return baton::gpu_emulator::ChangeAtomically(
      address, "atomicCAS", place, [expected, value](T old) {
        return std::memcmp(&old, &expected, sizeof(T)) == 0 ? value : old;
      });
}

// nvcc makes it ld.global.nc: a read through a cache that does not see writes of the same launch.
template <typename T>
BATON_MEMORY_CALL T __ldg(const T* address) {
  if (baton::gpu_emulator::kRaceChecked) {
    baton::gpu_emulator::NoteReadOnly(address, sizeof(T), __builtin_return_address(0));
  }
  return *address;
}
template <typename T>
T __ldcg(const T* address) {
  return *address;
}
template <typename T>
T __ldcs(const T* address) {
  return *address;
}
template <typename T>
void __stcg(T* address, T value) {
  *address = value;
}
template <typename T>
void __stcs(T* address, T value) {
  *address = value;
}
