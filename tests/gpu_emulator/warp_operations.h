// Functions that kernels call to exchange values between lanes and to wait for each other.
//
// Semantics: CUDA C++ Programming Guide, "Warp Shuffle Functions", "Warp Vote Functions", "Warp
// Reduce Functions" and "Synchronization Functions". If a lane takes no part, CUDA leaves its
// value undefined; here it is kUndefined.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tests/gpu_emulator/source_place.h"

namespace baton::gpu_emulator {

inline constexpr uint64_t kUndefined = 0x7fffdead7fffdead;  // NaN in f32 and in both halves

enum class Shuffle : uint8_t { kFrom, kUp, kDown, kXor };
enum class Reduction : uint8_t { kAdd, kMin, kMax, kMinSigned, kMaxSigned, kAnd, kOr, kXor };

struct Votes {
  uint32_t ballot;
  bool any, all;
};

// Only __syncwarp orders memory accesses of lanes; the other operations do not.
void SyncWarp(uint32_t mask, SourcePlace place);
// `argument`: source lane, distance or lane mask. width: 1, 2, 4, …, 32 lanes.
uint64_t ShuffleValue(Shuffle kind, uint32_t mask, uint64_t value, uint32_t argument, int width,
                      SourcePlace place);
Votes Vote(uint32_t mask, bool value, SourcePlace place);
uint32_t Reduce(Reduction kind, uint32_t mask, uint32_t value, SourcePlace place);

// __syncthreads.
void SyncBlock(SourcePlace place);
// `threads` threads of the block meet at barrier 1 to 15. They are whole warps, and the lanes of a
// warp call it from the same line.
void SyncNamedBarrier(int barrier, uint32_t threads, SourcePlace place);
void ArriveNamedBarrier(int barrier, uint32_t threads, SourcePlace place);

// Threads that see a fence. The emulated device is the whole system.
enum class FenceScope : uint8_t { kNone, kBlock, kDevice };

void Fence(FenceScope scope, SourcePlace place);  // __threadfence and its variants
// Orders of memory accesses through an atomic object, for threads in the scope.
void ReleaseAt(const void* address, FenceScope scope);
void AcquireAt(const void* address, FenceScope scope);
void BeforeAtomic(const void* address, size_t bytes, const char* name, SourcePlace place);
void AfterAtomic(const void* address);
// Tells ThreadSanitizer of a read through the cache that is not coherent within a launch (__ldg).
// It is not ordered with any write of the same launch. caller: an instruction of the kernel.
void NoteReadOnly(const void* address, size_t bytes, void* caller);
void Sleep(SourcePlace place);  // __nanosleep
[[noreturn]] void Trap(SourcePlace place);
void* SharedBase();

}  // namespace baton::gpu_emulator
