// cp.async: copies of one thread into shared memory.
#pragma once

#include <cstdint>

#include "tests/gpu_emulator/source_place.h"

namespace baton::gpu_emulator {

// Copies 16 bytes, or writes zeros if not `valid`.
void CopyAsync(void* shared, const void* global, bool valid, SourcePlace place);
void CommitAsyncCopies();
void WaitAsyncCopies(uint32_t groups, SourcePlace place);

// Loads and stores of flags in device memory.
uint32_t LoadFlag(const unsigned* address, SourcePlace place);
void StoreFlag(unsigned* address, uint32_t value, SourcePlace place);
// Returns the value before. Counts as a fence for planted faults: without it, the addition remains.
uint32_t AddToFlag(unsigned* address, uint32_t value, SourcePlace place);

}  // namespace baton::gpu_emulator
