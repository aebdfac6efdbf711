// Index of the prefixes that the workers have cached, built from the workers' own KV events. It
// also records for each incarnation of a worker how far its events have been applied.
//
// An entry is a hint, because each worker matches prompts against its own tree. If a worker's event
// stream breaks, its entries stay until the stream or the worker comes back, or the worker is gone.
// A worker of an older build that publishes no events has no entries here.
//
// A worker has settled when one of these holds:
// - The index has once caught up with its events.
// - It is known to publish no events.
// - `patience_us` have passed. A worker that registers but does not serve its event stream must not
//   keep the router from serving. Without events, requests only take longer.
//
// Thread safety: every function, from any thread. Functions of the first group never wait while an
// event is being applied. The others wait for each other.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "cache/index/global_index.h"
#include "cache/index/kv_event_follower.h"
#include "common/strong_int.h"

namespace baton {

struct FleetIndexOptions {
  size_t max_units = size_t{1} << 22;  // capacity in distinct units, 1 to 2^27
  int64_t patience_us = 5'000'000;
  KeySeeds key_seeds;  // random if clients may craft hash collisions
};

// One message of a worker's stream of events (Worker.StreamKvEvents).
struct KvEventMessage {
  Epoch epoch{0};
  // Number of this batch; for a snapshot: of the last batch that it includes; in a stream's first
  // message: of the newest batch that the worker has.
  uint64_t sequence = 0;
  std::string_view events;  // encoded; empty in the stream's first message
  uint32_t part = 0;
  uint32_t parts = 0;  // of a snapshot; 0 for a batch
};

// Where a stream shall begin: after this batch.
struct KvEventPosition {
  Epoch epoch{0};
  uint64_t sequence = 0;
};

struct FollowedWorker {
  IndexedWorker worker;
  Epoch epoch{0};
  bool followed = false;  // the index has applied all events that the worker has published
  size_t units = 0;       // that the worker holds
  uint64_t sequence = 0;  // last batch applied
  int64_t gaps = 0;       // times that batches were missing
  int64_t snapshots = 0;  // snapshots applied
  std::string trouble;    // why it is not followed; empty while it is
};

struct FleetIndexStatus {
  size_t units = 0;        // distinct units
  size_t memberships = 0;  // (unit, worker) pairs
  size_t max_units = 0;
  uint64_t refused_units = 0;           // dropped because the index was full, since the start
  size_t bytes = 0;                     // memory that the index uses
  int64_t gaps = 0;                     // of all workers since the start, also of departed ones
  int64_t snapshots = 0;                // the same
  std::vector<FollowedWorker> workers;  // ordered by number
};

class FleetIndex {
 public:
  explicit FleetIndex(const FleetIndexOptions& options);

  // Returns how many leading units each worker holds, largest first.
  std::vector<HeldPrefix> Match(std::span<const Hash128> hashes) const {
    return index_.MatchWorkers(hashes);
  }
  // As GlobalIndex::MatchSome, for the numbers that the workers in `also` had at their last event.
  SomeHolders MatchSome(std::span<const Hash128> hashes, size_t most, uint64_t turn,
                        std::span<const IndexedWorker> also) const;
  bool IsFollowed(IndexedWorker worker) const;
  // Returns false if the index does not know one of the workers yet.
  bool HaveSettled(std::span<const IndexedWorker> workers, int64_t now_us) const;
  FleetIndexStatus Status() const;
  // Records that a stream has ended or could not begin. The worker's entries stay. Ignored if the
  // worker is gone.
  void Interrupted(IndexedWorker worker, const absl::Status& why);
  // Records that this worker will publish no events.
  void CannotTell(IndexedWorker worker, const absl::Status& why);

  // Adds a new incarnation. REQUIRES: its number was never used.
  void Add(IndexedWorker worker, Epoch epoch, int64_t now_us);
  // Removes an incarnation and all its entries.
  void Remove(IndexedWorker worker);
  // Returns the position after which the next stream must begin. NotFound if the worker is gone.
  absl::StatusOr<KvEventPosition> Position(IndexedWorker worker) const;
  // Applies one message of a worker's stream. NotFound: the worker is gone. Aborted: the message is
  // from another incarnation. InvalidArgument: the events cannot be decoded. DataLoss: a batch is
  // missing. After the last two errors, the worker's entries are removed and its next stream begins
  // from the start.
  absl::Status Take(IndexedWorker worker, const KvEventMessage& message);

 private:
  struct Source {
    Epoch epoch{0};
    KvEventFollower follower;
    bool heard = false;   // the first message of this stream, or of an earlier one, has come
    uint64_t target = 0;  // newest batch at the worker according to that message
    int64_t gaps = 0;
    int64_t snapshots = 0;
  };
  struct State {
    FollowedWorker shown;
    std::array<std::optional<HolderId>, kCacheTiers> holders = {};
    int64_t since_us = 0;
    bool has_settled = false;
  };
  static absl::Status Apply(const KvEventMessage& message, std::span<const KvEvent> events,
                            Source& source);
  void Show(IndexedWorker worker, const Source& source, const absl::Status& taken);
  // Forgets the state of `departed` in the same moment, so that no total ever falls.
  void ShowTotals(std::optional<IndexedWorker> departed = std::nullopt);

  const FleetIndexOptions options_;
  GlobalIndex index_;
  mutable std::mutex writer_mutex_;  // lock order: before state_mutex_
  absl::flat_hash_map<IndexedWorker, Source> sources_;
  // Of workers that are gone; guarded by writer_mutex_.
  int64_t departed_gaps_ = 0;
  int64_t departed_snapshots_ = 0;
  mutable std::mutex state_mutex_;  // held only briefly
  absl::flat_hash_map<IndexedWorker, State> states_;
  FleetIndexStatus totals_;  // without workers
};

}  // namespace baton
