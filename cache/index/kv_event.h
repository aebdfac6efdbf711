// KV events, which report changes of a worker's KV cache to the fleet's index, and their byte
// format.
//
// A batch is a list of events, little-endian, without padding:
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
// A hash is its low 64 bits, then its high 64 bits (cache_key.h). Hashes are chained over units of
// 16 tokens. The chain begins with the namespace, so events do not name a namespace. A worker with
// another block size reports every unit that lies in its committed full blocks.
//
// A cached prompt chunk is one unit without parent. Its hash is that of the chunk's key
// (chunk_cache.h), which no prefix has. Readers that do not know chunks keep such units, and no
// prompt of theirs matches them.
//
// A batch is sent with the worker's epoch and the batch's number. Numbers start at 1 in each epoch,
// and a worker begins its epoch with an empty cache. A snapshot is one or more batches of stored
// events for everything that the worker holds. It has the number of the last batch that it
// includes. On the wire this is KvEventBatch of Worker.StreamKvEvents
// (proto/baton/v1/worker.proto). KvEventBatcher writes batches, KvEventFollower reads them.
//
// How other projects' events map to these:
//
// vLLM (KVEventBatch, msgpack over ZeroMQ, as of autumn 2026):
// - BlockStored(block_hashes, parent_block_hash, token_ids, block_size, medium, lora_name,
//   extra_keys, group_idx) is stored. vLLM uses its own hash function and block size, so token_ids
//   must be hashed again. The namespace comes from lora_name (earlier: lora_id) and the cache salt
//   in extra_keys.
// - BlockRemoved(block_hashes, medium) is removed, for the hash that its BlockStored had.
// - AllBlocksCleared is cleared.
// - The medium GPU, or none, is device, and CPU is host. A disk named by a connector is disk.
// - A group_idx of a group other than full attention has no equivalent yet.
// - data_parallel_rank: each rank is a separate worker.
// - The number before a batch (8 bytes, big-endian, from 0) is the sequence number minus one.
// - A gap is requested again at the replay socket by its first number. The socket keeps the last
//   buffer_steps batches (10,000). Older ones are lost; Baton sends a snapshot instead.
// - There is no epoch. A number smaller than expected is a restart: treat it as cleared and a new
//   epoch.
//
// Dynamo (RouterEvent):
// - KvCacheStoreData(parent_hash, blocks{block_hash, tokens_hash}) is stored. Its parent and block
//   hashes are chained and have 64 bits.
// - KvCacheRemoveData is removed.
// - Cleared is cleared, for one (worker_id, dp_rank), which is one worker here.
// - event_id is the sequence number.
// - storage_tier device, host_pinned and disk are device, host and disk. external (a shared store)
//   belongs to no worker.
// - LoRA is in the hashes, as here.
// - There is no epoch. A new worker_id is a new epoch.
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

// REQUIRES: every event is valid for the format, and the batch does not exceed the maximum size.
std::string EncodeKvEvents(std::span<const KvEvent> events);
// Parses a batch. InvalidArgument, with the place and the value, for all bytes that EncodeKvEvents
// does not write. Allocates at most a small multiple of bytes.size().
absl::StatusOr<std::vector<KvEvent>> DecodeKvEvents(std::string_view bytes);

}  // namespace baton
