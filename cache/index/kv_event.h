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
// Who sends, in which epoch and with which sequence number stands around a batch (KvEventFollower).
//
// How this maps to others' events:
//   vLLM (KVEventBatch)
//     BlockStored(block_hashes, parent_block_hash, medium) is stored, once its hashes are ours (it
//     hashes with its own function, over its block size, and sends token ids to rehash from);
//     BlockRemoved(block_hashes, medium) is removed; AllBlocksCleared is cleared. Medium GPU is
//     device, CPU host.
//   Dynamo (RouterEvent)
//     KvCacheStoreData(parent_hash, blocks{block_hash, tokens_hash}) is stored, the parent and
//     block hashes being chained ones; KvCacheRemoveData is removed; Cleared is cleared; event_id
//     is the sequence number.
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
#include "cache/index/global_index.h"
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

void ApplyKvEvent(IndexedWorker worker, const KvEvent& event, GlobalIndex& index);

// Keeps one incarnation of one worker in the index, as its numbered batches say. Batches count from
// 1 in each epoch. A worker starts with an empty cache, so a follower that hears an epoch from its
// first batch on needs nothing else; one that comes later, or missed a batch, needs a snapshot:
// stored events for all that the worker holds, and the number of the last batch that is in it.
//
// Invariant: while ready(), the index has of this worker exactly what batches 1 to sequence() said.
//
// Thread safety: belongs to the index's writer.
class KvEventFollower {
 public:
  enum class Outcome {
    kApplied,
    kIgnored,       // an old epoch, or a batch that was applied before
    kNeedSnapshot,  // a gap: nothing was applied, and nothing will be until a snapshot comes
  };

  // Follows from the beginning of `epoch`. `index` must outlive this.
  KvEventFollower(IndexedWorker worker, Epoch epoch, GlobalIndex* index);

  Outcome Batch(Epoch epoch, uint64_t sequence, std::span<const KvEvent> events);
  // kIgnored for another epoch, and for a snapshot older than what is known.
  Outcome Snapshot(Epoch epoch, uint64_t sequence, std::span<const KvEvent> events);

  bool ready() const { return ready_; }
  uint64_t sequence() const { return sequence_; }  // of the last batch that is in the index

 private:
  const IndexedWorker worker_;
  const Epoch epoch_;
  GlobalIndex* const index_;
  uint64_t sequence_ = 0;
  bool ready_ = true;
};

}  // namespace baton
