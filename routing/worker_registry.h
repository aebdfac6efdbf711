// Which workers there are: what their heartbeats said, when they were last heard of, and what this
// router has running on them.
//
// Pure: time comes from a Clock, heartbeats from the edge. Rules:
//  - A worker is alive until `expiry_us` passed since its last heartbeat, or until it says that it
//    leaves.
//  - An incarnation is (worker id, epoch) and has a WorkerNumber of its own, never reused. A new
//    epoch replaces the one before; what an incarnation says after it was replaced or has left is
//    refused (for kTombstoneUs). One that merely was not heard of may come back. Epochs are random:
//    they have no order.
//  - The fleet serves one model: that of the first worker. Another model is refused by name while
//    any worker is there; where the options pin a model, another one is refused always.
//  - The same holds for the fingerprint, unless the options allow several: a request's answer must
//    not depend on who gives it. When the last worker of the old one has gone, a new one is taken.
//    A backend that is no confirmed pair with the fleet's counts as another fingerprint.
//  - One address is one worker, and one id is one worker: an incarnation takes over the id or the
//    address of another only when that one has left or has been silent for `take_over_us`; before,
//    it is refused. So nobody evicts a worker that lives, and a worker that was killed and
//    restarted is back two heartbeats later.
//  - A heartbeat that is refused changes nothing.
//  - An unreachable worker (a call to it failed) gets no new requests until it answers a probe:
//    that its heartbeats come does not say that calls get there.
//  - A silent worker (it does not answer probes) gets none until it answers, where another one
//  could
//    take its place: what nobody else could do anyway may as well wait for it.
//
// Thread safety: the host's lock.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cache/index/indexed_worker.h"
#include "common/backend_pairs.h"
#include "common/clock.h"
#include "common/protocol_range.h"
#include "common/strong_int.h"

namespace baton {

// As the index knows it.
using WorkerNumber = IndexedWorker;

enum class WorkerRole : uint8_t { kPrefill, kDecode, kBoth };

// One heartbeat's content, as far as routing needs it.
struct WorkerReport {
  std::string id;
  std::string address;  // HOST:PORT
  WorkerRole role = WorkerRole::kDecode;
  Epoch epoch{0};
  std::string model;       // fingerprint of the model alone
  std::string model_name;  // as its file says it
  // Of all that two workers must agree on, for a hand-off and for going on with an answer; compared
  // for equality. What is told beside it is no part of it: backend, protocol, and how the pool is
  // cut (pool_layout and block_size).
  std::string fingerprint;
  std::string backend;
  ProtocolRange protocol;  // between workers
  std::string pool_layout;
  int32_t kv_groups = 1;     // of the model
  bool prefix_cache = true;  // keeps finished sequences' KV
  bool draining = false;
  int32_t queued = 0;              // sequences waiting, running and waiting for KV
  int32_t block_size = 0;          // tokens
  int32_t available_blocks = 0;    // free, or cached and evictable
  int64_t pool_tokens = 0;         // that its whole pool holds; 0: not told
  bool paged = true;               // else a sequence's place is reserved whole
  int32_t context_length = 0;      // tokens of a sequence there, at most; 0: not told
  int32_t max_running = 0;         // sequences of a step there, at most; 0: not told
  int32_t min_prefix_tokens = 0;   // a shorter cached prefix is not used there
  int64_t kv_bytes_per_token = 0;  // 0: not told

  // How many of a sequence's tokens it could have were it alone there. The last one's KV is never
  // written; a contiguous pool keeps its place all the same.
  int64_t RoomFor(int64_t tokens) const {
    const int64_t unwritten = paged ? 1 : 0;
    if (pool_tokens > 0) tokens = std::min(tokens, pool_tokens + unwritten);
    return context_length > 0 ? std::min(tokens, int64_t{context_length}) : tokens;
  }
};

// Prompt tokens that a worker was given to compute, and how long that was expected to take.
struct PrefillWork {
  int64_t tokens = 0;
  int64_t us = 0;
  uint64_t prefix = 0;  // RoutingInput::held_prefix

  bool operator==(const PrefillWork&) const = default;
};

struct WorkerRecord {
  WorkerNumber number;
  WorkerReport report;
  int64_t last_heard_us = 0;
  bool unreachable = false;
  bool silent = false;
  int32_t active = 0;    // requests of this router that run there now
  int32_t others = 0;    // sequences of other routers there, at the last heartbeat
  int64_t assigned = 0;  // requests of this router, ever
  // Prompts of this router that it has yet to compute, in the order they were sent.
  std::vector<PrefillWork> prompts;
  PrefillWork pending;              // their sum
  int64_t prefilling_since_us = 0;  // when it can have begun with the first of them

  bool CanPrefill() const { return report.role != WorkerRole::kDecode; }
  bool CanDecode() const { return report.role != WorkerRole::kPrefill; }
  bool Usable() const { return !unreachable && !silent && !report.draining; }
  // What it has to do. This router's own part is exact at any time; a finished request does not
  // count until the next heartbeat says so.
  int32_t Load() const { return active + others; }
  // A request would have to wait there.
  bool AtLimit() const { return report.max_running > 0 && Load() >= report.max_running; }
  // Until it has computed all prompts that this router gave it, one after the other. The first may
  // take longer than was expected, but then nothing is known of how much longer.
  int64_t BacklogUs(int64_t now_us) const;
};

// What became of a worker.
struct FleetChange {
  enum class Kind : uint8_t {
    kJoined,
    kLeft,      // it said so
    kReplaced,  // another incarnation took over its id or address
    kExpired,
    kUnreachable,
    kReachable,
    kSilent,
    kAnswers,
  };
  Kind kind;
  WorkerReport report;
};

struct RegistryOptions {
  // Name or fingerprint that every worker must have; empty: the first one's.
  std::string model = "";
  std::string fingerprint = "";     // the same of WorkerReport::fingerprint
  bool mixed_fingerprints = false;  // workers of one model whose answers differ serve together
  // Of different backends that serve together all the same.
  std::span<const BackendPair> confirmed_backends = kConfirmedBackendPairs;
  int64_t expiry_us = 3'000'000;
  int64_t take_over_us = 2'000'000;  // twice the workers' heartbeat interval
  int32_t max_workers = 4096;
  // Expire is called more often than this; what is longer, this process did not run, and heard
  // nobody for that reason. 0: it does not matter when it is called.
  int64_t longest_look_us = 0;
};

class WorkerRegistry {
 public:
  static constexpr int64_t kTombstoneUs = 600'000'000;
  static constexpr size_t kMaxNameBytes = 256;
  static constexpr size_t kMostChanges = 1024;

  // `clock` must outlive this.
  WorkerRegistry(const RegistryOptions& options, const Clock* clock)
      : options_(options), clock_(clock) {}

  // FailedPrecondition (another model or fingerprint than the fleet's or the pinned one, an epoch
  // that has ended, an id or address in use), InvalidArgument (a field without sense),
  // ResourceExhausted (too many workers).
  absl::Status Heartbeat(WorkerReport report);
  // Ignored when that incarnation is not there.
  void Leave(const std::string& id, Epoch epoch);
  void MarkUnreachable(WorkerNumber number);
  void MarkReachable(WorkerNumber number);
  // Those that do not answer; all others do. Returns those of them whose requests can go on
  // elsewhere: prompts on any decode worker, answers on one with equal KV. Of a worker that has
  // left the registry nothing is known but that it is not needed when there is a usable one.
  std::vector<WorkerNumber> SetSilent(const absl::flat_hash_set<WorkerNumber>& silent);
  // Forgets who has not been heard of while this process ran.
  void Expire();
  // Incarnations that went since the last call, however they went.
  std::vector<WorkerNumber> TakeDeparted();

  // What happened since the last call, in order; of much, the first kMostChanges.
  std::vector<FleetChange> TakeChanges();

  // A request starts on, or leaves, a worker. Ignored when the worker is gone.
  void AddActive(WorkerNumber number);
  void RemoveActive(WorkerNumber number);
  // A prompt is to be computed there, and has been (or never will be): the same `work`. Ignored
  // when the worker is gone.
  void AddPrefill(WorkerNumber number, const PrefillWork& work);
  void RemovePrefill(WorkerNumber number, const PrefillWork& work);

  // Null when it is gone. Valid until the next call that changes the registry.
  const WorkerRecord* Find(WorkerNumber number) const;
  const std::vector<WorkerRecord>& workers() const { return workers_; }
  // Empty when there are no workers.
  const std::string& fleet_model() const { return fleet_model_; }

 private:
  using Incarnation = std::pair<std::string, Epoch>;
  WorkerRecord* FindMutable(WorkerNumber number);
  WorkerRecord* FindIncarnation(const std::string& id, Epoch epoch);
  absl::Status Check(const WorkerReport& report) const;
  absl::Status CheckPinned(const WorkerReport& report) const;
  // A worker that goes on under what it said before.
  absl::Status CheckUnchanged(const WorkerReport& before, const WorkerReport& report) const;
  // An incarnation that is new here and replaces the workers `taken`.
  absl::Status CheckNew(const WorkerReport& report, std::span<const WorkerNumber> taken) const;
  absl::Status CheckBackend(const WorkerReport& report, std::span<const WorkerNumber> taken) const;
  // The incarnations whose id or address this report takes; an error when one of them lives.
  absl::StatusOr<std::vector<WorkerNumber>> TakenOver(const WorkerReport& report) const;
  void Note(FleetChange::Kind kind, const WorkerRecord& worker);
  void RemoveAt(size_t index);
  void Bury(size_t index);  // removes, and refuses its further words

  const RegistryOptions options_;
  const Clock* const clock_;
  uint32_t next_number_ = 1;
  int64_t last_look_us_ = 0;
  std::vector<WorkerRecord> workers_;
  std::vector<WorkerNumber> departed_;
  std::vector<FleetChange> changes_;
  std::string fleet_model_;
  std::string fleet_fingerprint_;  // of the worker that registered last
  absl::flat_hash_map<Incarnation, int64_t> buried_until_us_;
};

}  // namespace baton
