// A tensor map: describes a tensor in device memory, of which kernels copy tiles. A kernel gets it
// in its parameter struct. The driver encodes it (cuTensorMapEncodeTiled); the emulator's driver
// writes a form of its own.
#pragma once

#include <cstddef>
#include <cstdint>

namespace baton {

struct alignas(128) TensorMap {  // as CUDA 13's; CUDA 12 asks for 64
  uint64_t opaque[16];
};

// Order of the 16-byte chunks of a tile in shared memory. Bits 4 … of a chunk's address are
// combined by XOR with its bits 7 …, so that the rows of a column lie in different banks.
enum class SharedSwizzle : uint8_t { kNone, k32Bytes, k64Bytes, k128Bytes };

}  // namespace baton
