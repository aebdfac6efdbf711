// A tensor map describes a tensor in device memory for kernels that copy tiles of it. The parameter
// struct of a kernel contains the map. The driver encodes it (cuTensorMapEncodeTiled). The
// emulator's driver uses its own encoding.
#pragma once

#include <cstddef>
#include <cstdint>

namespace baton {

struct alignas(128) TensorMap {  // as CUDA 13's; CUDA 12 asks for 64
  uint64_t opaque[16];
};

// Order of the 16-byte chunks of a tile in shared memory. Bits 4 … of a chunk's address are
// combined by XOR with its bits 7 …, so that the rows of a column are in different banks.
enum class SharedSwizzle : uint8_t { kNone, k32Bytes, k64Bytes, k128Bytes };

}  // namespace baton
