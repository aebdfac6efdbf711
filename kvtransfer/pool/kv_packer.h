// Copies blocks of KV group 0 between a pool and host memory, with a checksum. Used for prompt
// chunks that sleep (engine/chunk_mover_thread.h).
//
// It accesses the pool through leases (transfer_pool.h), so it works for every pool. Calls wait for
// the pool's copies, so they belong to a thread that may wait.
//
// The checksum is made of the bytes as they were in the pool. Unpack compares it with the bytes
// that it is about to write, after they were decompressed. So it finds damage in host memory, and
// faults of the compression.
//
// Thread safety: belongs to one thread. Nothing else uses the pool's leases.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cache/packed_kv.h"
#include "common/strong_int.h"
#include "kvtransfer/pool/block_compression.h"
#include "kvtransfer/transfer_pool.h"

namespace baton {

class KvPacker {
 public:
  // `pool` outlives this. With `compress`, blocks are compressed if that makes them smaller.
  KvPacker(TransferPool* pool, bool compress);

  // Copies the first `tokens` tokens of a block out of the pool. REQUIRES: the block does not
  // change during the call. Errors are those of the pool's copies.
  absl::StatusOr<PackedBlock> Pack(BlockId block, int32_t tokens);
  // Copies them back. DataLoss: the checksum is wrong, or the bytes do not fit; the block's
  // contents are then undefined. REQUIRES: nothing reads or writes the block during the call.
  absl::Status Unpack(const PackedBlock& packed, BlockId block, int32_t tokens);

 private:
  absl::StatusOr<PoolLease> Lease(PoolAccess access, BlockId block, int32_t tokens);

  TransferPool* const pool_;
  BlockCompression compression_;
  const bool compress_;
  std::vector<std::byte> bytes_;  // of one block, reused
};

}  // namespace baton
