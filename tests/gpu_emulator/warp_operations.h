// What kernels call to exchange values between lanes and to wait for each other.
//
// Semantics: CUDA C++ Programming Guide, "Warp Shuffle Functions", "Warp Vote Functions", "Warp
// Reduce Functions" and "Synchronization Functions". A value that CUDA leaves undefined, because
// its lane takes no part, is kUndefined here.
#pragma once

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
// `threads` threads of the block meet at barrier 0 to 15; a multiple of 32.
void SyncNamedBarrier(int barrier, uint32_t threads, SourcePlace place);
void ArriveNamedBarrier(int barrier, uint32_t threads, SourcePlace place);

void Fence(SourcePlace place);  // __threadfence and its variants
void BeforeAtomic(const void* address, const char* name, SourcePlace place);
void AfterAtomic(const void* address);
void Sleep(SourcePlace place);  // __nanosleep
[[noreturn]] void Trap(SourcePlace place);
void* SharedBase();

}  // namespace baton::gpu_emulator
