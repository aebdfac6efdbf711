// What the workers of the fleet have cached, as they tell it themselves: the global index, and for
// every incarnation of a worker how far its KV events were followed.
//
// What it says is a hint: the worker matches its own tree. A worker whose stream has broken keeps
// its units until it is back or gone; one that cannot tell (an older build) holds nothing here.
//
// A worker has settled when its events were followed up once, when it is known that it cannot tell,
// or when `patience_us` have passed: one that registers but does not let itself be followed must
// not keep a router from serving, since without its events requests cost time and nothing else.
//
// Thread safety: every function, from any thread. Those of the first group never wait for an event
// to be taken in; the others do, for each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
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
  size_t max_units = size_t{1} << 22;  // different ones, 1 to 2^27
  int64_t patience_us = 5'000'000;
  KeySeeds key_seeds;  // random ones where hashes may be hostile
};

// One message of a worker's stream of events (Worker.StreamKvEvents).
struct KvEventMessage {
  Epoch epoch{0};
  uint64_t sequence =
      0;  // of the batch; of the last one in the snapshot; the first: of the last one
  std::string_view events;  // encoded; empty: the stream's first message
  uint32_t part = 0;
  uint32_t parts = 0;  // of a snapshot; 0: a batch
};

// Where a stream is to begin: behind this batch.
struct KvEventPosition {
  Epoch epoch{0};
  uint64_t sequence = 0;
};

struct FollowedWorker {
  IndexedWorker worker;
  Epoch epoch{0};
  bool followed = false;  // all that it has told is in the index
  size_t units = 0;       // that it holds
  uint64_t sequence = 0;  // of the last batch taken in
  int64_t gaps = 0;       // times that batches were missing
  int64_t snapshots = 0;  // taken in
  std::string trouble;    // why it is not followed; empty while it is
};

struct FleetIndexStatus {
  size_t units = 0;        // different ones
  size_t memberships = 0;  // (unit, worker) pairs
  size_t max_units = 0;
  uint64_t refused_units = 0;           // found no room, ever
  size_t bytes = 0;                     // of memory
  std::vector<FollowedWorker> workers;  // by number
};

class FleetIndex {
 public:
  explicit FleetIndex(const FleetIndexOptions& options);

  // Who holds how many leading units, the most first.
  std::vector<HeldPrefix> Match(std::span<const Hash128> hashes) const {
    return index_.MatchWorkers(hashes);
  }
  bool IsFollowed(IndexedWorker worker) const;
  // False when one of them is not known here yet.
  bool HaveSettled(std::span<const IndexedWorker> workers, int64_t now_us) const;
  FleetIndexStatus Status() const;
  // A stream has ended or could not begin; what was taken in stays. The worker may be gone.
  void Interrupted(IndexedWorker worker, const absl::Status& why);
  // There will be no events from this worker.
  void CannotTell(IndexedWorker worker, const absl::Status& why);

  // An incarnation that is new. REQUIRES: its number was never used.
  void Add(IndexedWorker worker, Epoch epoch, int64_t now_us);
  // It is gone, and with it all that it held.
  void Remove(IndexedWorker worker);
  // NotFound when it is gone.
  absl::StatusOr<KvEventPosition> Position(IndexedWorker worker) const;
  // NotFound: the worker is gone. Aborted: another incarnation is speaking. InvalidArgument: no
  // batch of events. DataLoss: a batch is missing. After the last two all that the worker held is
  // forgotten, and its next stream begins anew.
  absl::Status Take(IndexedWorker worker, const KvEventMessage& message);

 private:
  struct Source {
    Epoch epoch{0};
    KvEventFollower follower;
    bool heard = false;   // the first message of this stream or one before
    uint64_t target = 0;  // the last batch there was then
    int64_t gaps = 0;
    int64_t snapshots = 0;
  };
  struct State {
    FollowedWorker shown;
    int64_t since_us = 0;
    bool has_settled = false;
  };
  static absl::Status Apply(const KvEventMessage& message, std::span<const KvEvent> events,
                            Source& source);
  void Show(IndexedWorker worker, const Source& source, const absl::Status& taken);
  void ShowTotals();

  const FleetIndexOptions options_;
  GlobalIndex index_;
  mutable std::mutex writer_mutex_;  // before state_mutex_
  absl::flat_hash_map<IndexedWorker, Source> sources_;
  mutable std::mutex state_mutex_;  // for moments only
  absl::flat_hash_map<IndexedWorker, State> states_;
  FleetIndexStatus totals_;  // without workers
};

}  // namespace baton
