// KV of a prompt chunk outside the pool, in host memory.
//
// Thread safety: immutable after it was made, and shared between threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace baton {

// One block's tokens: all layers, in the canonical order of pieces (kvtransfer/pool/pieces.h).
struct PackedBlock {
  std::vector<std::byte> bytes;
  bool compressed = false;
  uint32_t crc = 0;  // CRC32C of the uncompressed bytes
};

struct PackedKv {
  std::vector<PackedBlock> blocks;  // the last one may be part-full

  // Host memory that it takes.
  int64_t host_bytes() const {
    int64_t bytes = sizeof(PackedKv);
    for (const PackedBlock& block : blocks) {
      bytes += static_cast<int64_t>(sizeof(PackedBlock) + block.bytes.capacity());
    }
    return bytes;
  }
};

// Upper limit of host_bytes for `blocks` blocks of `bytes_per_block` bytes.
inline int64_t MostHostBytes(int32_t blocks, int64_t bytes_per_block) {
  return static_cast<int64_t>(sizeof(PackedKv)) +
         blocks * (bytes_per_block + static_cast<int64_t>(sizeof(PackedBlock)));
}

}  // namespace baton
