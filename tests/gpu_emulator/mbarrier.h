// mbarrier: a barrier in shared memory that counts arrivals and bytes (PTX ISA, "mbarrier").
//
// The emulator has its own encoding of the 64-bit object. PTX does not define one.
#pragma once

#include <cstdint>

#include "tests/gpu_emulator/source_place.h"

namespace baton::gpu_emulator {

inline constexpr uint32_t kMostArrivals = (1u << 20) - 1;  // PTX's limits
inline constexpr uint32_t kMostPendingBytes = (1u << 20) - 1;

void InitMbarrier(uint64_t* barrier, uint32_t arrivals, SourcePlace place);
// Copies see the barriers that were initialised before.
void FenceMbarrierInit(SourcePlace place);
// Arrives after `bytes` were added to those that the phase waits for.
void ArriveMbarrier(uint64_t* barrier, uint32_t bytes, SourcePlace place);
void WaitMbarrier(uint64_t* barrier, uint32_t parity, SourcePlace place);
// A copy to this barrier has been issued by the running thread.
void NoteCopyToMbarrier(uint64_t* barrier, SourcePlace place);
// A copy has landed. Runs on any stack. Does nothing if the barrier is gone: its waits then fail.
void CompleteMbarrierBytes(uint64_t* barrier, uint32_t bytes);

}  // namespace baton::gpu_emulator
