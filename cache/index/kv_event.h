// What a worker tells the fleet's index of its KV cache, and how that is written in bytes.
//
// A batch is a row of events, little-endian, without padding:
//   u8  version       1
//   u8  reserved[3]   0
//   u32 events
//   and for every event
//   u8  kind          1 stored, 2 removed, 3 cleared
//   u8  tier          0 device, 1 host, 2 disk; 0 for cleared, which means every tier
//   u8  has_parent    0 or 1; 1 only for stored
//   u8  reserved      0
//   u32 hashes        0 for cleared, else 1 to 65,536
//   [16] parent       if has_parent: the hash of the unit before the first one
//   [16] hash …       of every unit, in the order of the chain (removed: in any order)
// A hash is its low 64 bits, then its high ones (cache_key.h): chained, over units of 16 tokens,
// beginning with the namespace, which is why events name none. A worker whose blocks are not 16
// tokens long tells of every unit that lies in a full block it has committed.
//
// Around a batch stand the worker's epoch and the batch's number: batches count from 1 in each
// epoch, and a worker begins its epoch with an empty cache. A snapshot is one or several batches of
// stored events alone, for all that the worker holds, and the number of the last batch that is in
// it. On the wire that is KvEventBatch of Worker.StreamKvEvents (proto/baton/v1/worker.proto); who
// reads it is a KvEventFollower, who writes it a KvEventBatcher.
//
// How this maps to others' events:
//   vLLM (KVEventBatch, msgpack over ZeroMQ, as of autumn 2026): BlockStored(block_hashes,
//     parent_block_hash, token_ids, block_size, medium, lora_name, extra_keys, group_idx) is
//     stored, once its hashes are ours: it hashes with its own function over its own block size, so
//     token_ids are hashed anew, under the namespace that lora_name (before it: lora_id) and the
//     cache salt in extra_keys give. BlockRemoved(block_hashes, medium) is removed, by the hash
//     that its BlockStored had; AllBlocksCleared is cleared. Medium GPU, or none, is device, CPU
//     host; what a connector names a disk is disk. A group_idx of another than the full-attention
//     group has no place here yet. data_parallel_rank: each rank is a worker of its own. The number
//     before a batch (8 bytes, big-endian, from 0) is the sequence number less one. A gap is asked
//     for again at the replay socket by its first number, out of the last buffer_steps batches
//     (10,000); what is no longer there is lost, where ours sends a snapshot. There is no epoch: a
//     number that is smaller than expected is a restart, to be taken as cleared and an epoch of our
//     own.
//   Dynamo (RouterEvent): KvCacheStoreData(parent_hash, blocks{block_hash, tokens_hash}) is stored,
//     the parent and block hashes being chained ones of 64 bits; KvCacheRemoveData is removed;
//     Cleared is cleared, of one (worker_id, dp_rank), which is a worker here; event_id is the
//     sequence number. storage_tier device, host_pinned and disk are device, host and disk;
//     external (a shared store) belongs to no worker. LoRA is in the hashes, as here. No epoch: a
//     new worker_id is one.
//
// Thread safety: values and functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "cache/cache_key.h"
#include "cache/index/indexed_worker.h"

namespace baton {

struct KvEvent {
  enum class Kind : uint8_t { kStored = 1, kRemoved = 2, kCleared = 3 };
  Kind kind = Kind::kCleared;
  CacheTier tier = CacheTier::kDevice;
  std::optional<Hash128> parent;
  std::vector<Hash128> hashes;

  bool operator==(const KvEvent&) const = default;
};

inline constexpr uint32_t kMaxHashesPerKvEvent = 65'536;
inline constexpr size_t kMaxKvEventBatchBytes = size_t{4} << 20;

// REQUIRES: every event is as the format says, and the batch is not larger than allowed.
std::string EncodeKvEvents(std::span<const KvEvent> events);
// InvalidArgument, naming the place and the value, for anything else than what EncodeKvEvents
// writes. Allocates no more than a small multiple of bytes.size().
absl::StatusOr<std::vector<KvEvent>> DecodeKvEvents(std::string_view bytes);

}  // namespace baton
