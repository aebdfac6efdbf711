// Registry of the fleet's workers: their latest heartbeats, when they arrived, and this router's
// requests on each worker.
//
// Pure: time comes from a Clock, heartbeats from the edge. Rules:
//  - A worker is alive until `expiry_us` passes without a heartbeat, or until it says that it
//    leaves.
//  - An incarnation is (worker id, epoch). It has its own WorkerNumber, which is never reused. A
//    new epoch replaces the earlier one. Heartbeats of an incarnation that was replaced or has left
//    are refused for kTombstoneUs. An incarnation that only expired may come back. Epochs are
//    random, so they have no order.
//  - The fleet serves one model: that of its first worker. While any worker is present, another
//    model is refused by name. If the options pin a model, all others are always refused.
//  - The same rule applies to the fingerprint, unless the options allow several. A request's answer
//    must not depend on the worker. When the last worker of the old fingerprint has gone, a new one
//    is accepted. A backend that is not a confirmed pair with the fleet's backends counts as
//    another fingerprint.
//  - One address is one worker, and one id is one worker. An incarnation takes over another's id or
//    address only if that one has left or has been silent for `take_over_us`. Earlier attempts are
//    refused. So no worker can evict a live one, and a killed and restarted worker is back after
//    two heartbeats.
//  - A refused heartbeat changes nothing.
//  - A worker's role may change within an epoch. Its requests stay where they are.
//  - An unreachable worker (a call to it failed) gets no new requests until it answers a probe. Its
//    heartbeats do not show that calls reach it.
//  - A silent worker (it does not answer probes) gets no requests until it answers, if another
//    worker could take its place. Requests that no other worker can serve wait for it.
//
// Thread safety: the host locks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
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
#include "common/prompt_chunk_support.h"
#include "common/protocol_range.h"
#include "common/strong_int.h"
#include "routing/prompt_shape.h"

namespace baton {

// Worker number, as in the index.
using WorkerNumber = IndexedWorker;

enum class WorkerRole : uint8_t { kPrefill, kDecode, kBoth };

// Content of a heartbeat, as far as routing needs it.
struct WorkerReport {
  std::string id;
  std::string address;                    // HOST:PORT
  WorkerRole role = WorkerRole::kDecode;  // may change; the others identify the worker
  bool changes_role = false;              // the worker serves both services and knows SetRole
  Epoch epoch{0};
  std::string model;       // fingerprint of the model only
  std::string model_name;  // from the model file
  // Everything that two workers must have in common for a hand-off or to continue an answer.
  // Compared for equality. Not included are the backend, the protocol and the pool's shape
  // (pool_layout and block_size), which are reported separately.
  std::string fingerprint;
  std::string backend;
  ProtocolRange protocol;  // versions of the protocol between workers
  std::string pool_layout;
  int32_t kv_groups = 1;     // of the model
  bool prefix_cache = true;  // keeps the KV of finished sequences
  bool draining = false;
  int32_t queued = 0;   // sequences waiting, running and waiting for KV
  int32_t waiting = 0;  // those of them that have no blocks yet
  // Prompt tokens that it still has to compute, of all routers; nullopt: not reported.
  std::optional<int64_t> prompt_tokens_left = {};
  int32_t routers = 1;             // routers that have this worker
  int32_t router_place = 0;        // of this router among them, by address
  int32_t block_size = 0;          // tokens
  int32_t available_blocks = 0;    // free, or cached and evictable
  int64_t pool_tokens = 0;         // tokens that its whole pool holds; 0: not reported
  bool paged = true;               // false: contiguous mode, a sequence reserves its largest length
  int32_t context_length = 0;      // most tokens of a sequence; 0: not reported
  int32_t max_running = 0;         // most sequences in a step; 0: not reported
  int32_t min_prefix_tokens = 0;   // a shorter cached prefix is not used
  int64_t kv_bytes_per_token = 0;  // 0: not reported
  double decode_tokens_per_s = 0;  // generated, mean of the last seconds; 0: none, or not reported
  std::shared_ptr<const PromptChunkSupport> chunks = {};  // null: takes no chunked prompts

  static constexpr int64_t kTypicalPromptTokens = 1024;
  // True if not even a prompt of typical size fits in now.
  bool IsFull() const { return int64_t{available_blocks} * block_size < kTypicalPromptTokens; }

  // Number of a sequence's `tokens` tokens that fit if the sequence is alone on the worker. The KV
  // of the last token is never written, but a contiguous pool reserves its slot.
  int64_t RoomFor(int64_t tokens) const { return RoomFor(tokens, /*padding=*/0, /*shared=*/0); }
  // The same for a sequence with a chunked prompt.
  int64_t RoomFor(int64_t tokens, const PromptShape& shape) const {
    return RoomFor(tokens, shape.PaddingAt(block_size), shape.shared_positions);
  }

 private:
  int64_t RoomFor(int64_t tokens, int64_t padding, int64_t shared_positions) const {
    const int64_t unwritten = paged ? 1 : 0;
    if (pool_tokens > 0) {
      tokens = std::min(tokens, std::max<int64_t>(0, pool_tokens + unwritten - padding));
    }
    return context_length > 0 ? std::min(tokens, context_length + shared_positions) : tokens;
  }
};

// Prompt tokens that a worker was given to compute, and the expected time.
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
  int64_t joined_us = 0;
  int64_t role_since_us = 0;  // when it joined or last changed its role
  bool unreachable = false;
  bool silent = false;
  int32_t active = 0;  // requests of this router running there
  int32_t others = 0;  // sequences of other routers there, at the last heartbeat
  // Prompt tokens of other routers that it had to compute at the last heartbeat; 0: none, or the
  // worker does not report them.
  int64_t others_tokens = 0;
  int64_t heard_own_us = 0;  // BacklogUs at the last heartbeat
  size_t heard_prompts = 0;  // so many leading `prompts` had been sent at the last heartbeat
  int64_t assigned = 0;      // requests of this router, total
  // Prompts of this router that it must still compute, in the order in which they were sent.
  std::vector<PrefillWork> prompts;
  PrefillWork pending;              // sum of `prompts`
  int64_t prefilling_since_us = 0;  // earliest time at which it can have begun the first of them
  bool touched = false;             // the registry's own: WorkerRegistry::TakeTouched names it
  int32_t place = 0;                // worker_places.h
  int32_t alike = 0;

  bool CanPrefill() const { return report.role != WorkerRole::kDecode; }
  bool CanDecode() const { return report.role != WorkerRole::kPrefill; }
  bool Usable() const { return !unreachable && !silent && !report.draining; }
  // Number of requests on the worker. This router's own part is always exact. The part of other
  // routers is that of the last heartbeat.
  int32_t Load() const { return active + others; }
  // Requests there that get their answer, or soon will: those whose prompt is not one to compute.
  double Answers() const { return std::max(0.0, Load() - static_cast<double>(prompts.size())); }
  // True if a new request would have to wait there.
  bool AtLimit() const { return report.max_running > 0 && Load() >= report.max_running; }
  // Expected time until it has computed all prompts that this router gave it, one after the other.
  // If the first takes longer than expected, its remaining time counts as zero.
  int64_t BacklogUs(int64_t now_us) const;
  // This router's prompt tokens there that are not computed yet, as BacklogUs estimates.
  int64_t BacklogTokens(int64_t now_us) const;
  // Time that this router's prompts there needed at the last heartbeat, and those sent since. It
  // does not shrink with time: what the worker computes meanwhile may be of other routers.
  int64_t HeardAndSentUs() const;
};

// A change of a worker's state.
struct FleetChange {
  enum class Kind : uint8_t {
    kJoined,
    kLeft,      // it announced that
    kReplaced,  // another incarnation took over its id or address
    kExpired,
    kUnreachable,
    kReachable,
    kSilent,
    kAnswers,
    kRoleChanged,
  };
  Kind kind;
  WorkerReport report;
};

struct RegistryOptions {
  // Name or fingerprint that every worker's model must have; empty: that of the first worker.
  std::string model = "";
  std::string fingerprint = "";     // same for WorkerReport::fingerprint
  bool mixed_fingerprints = false;  // workers whose answers differ may serve together
  // Pairs of different backends that may serve together.
  std::span<const BackendPair> confirmed_backends = kConfirmedBackendPairs;
  int64_t expiry_us = 3'000'000;
  int64_t take_over_us = 2'000'000;  // twice the workers' heartbeat interval
  int32_t max_workers = 4096;
  // Longest expected time between two calls of Expire. If more time passes, this process did not
  // run and could not receive heartbeats. The excess does not count as silence. 0: the interval
  // does not matter.
  int64_t longest_look_us = 0;
  bool notes_touched = false;  // keep the list of TakeTouched
};

// How much of a sequence a worker can hold, as WorkerReport::RoomFor needs it.
struct RoomShape {
  int64_t pool_tokens = 0;
  int32_t context_length = 0;
  int32_t block_size = 0;
  bool paged = true;

  bool operator==(const RoomShape&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const RoomShape& shape) {
    return H::combine(std::move(h), shape.pool_tokens, shape.context_length, shape.block_size,
                      shape.paged);
  }
};

class WorkerRegistry {
 public:
  static constexpr int64_t kTombstoneUs = 600'000'000;
  static constexpr size_t kMaxNameBytes = 256;
  static constexpr size_t kMostChanges = 1024;

  // REQUIRES: `clock` outlives this object.
  WorkerRegistry(const RegistryOptions& options, const Clock* clock)
      : options_(options), clock_(clock) {}

  // Adds or updates a worker. FailedPrecondition: the model or fingerprint differs from the fleet's
  // or the pinned one, the epoch has ended, or the id or address is in use. InvalidArgument: a
  // field is invalid. ResourceExhausted: too many workers.
  absl::Status Heartbeat(WorkerReport report);
  // Removes an incarnation. Ignored if it is not registered.
  void Leave(const std::string& id, Epoch epoch);
  void MarkUnreachable(WorkerNumber number);
  void MarkReachable(WorkerNumber number);
  // Sets the workers that do not answer probes; all others answer. Returns those whose requests can
  // continue elsewhere: prompts on any decode worker, answers on a worker with equal KV. A worker
  // that has left the registry is returned if a usable decode worker exists, because nothing else
  // is known of it.
  std::vector<WorkerNumber> SetSilent(const absl::flat_hash_set<WorkerNumber>& silent);
  // Removes the workers that were silent too long while this process ran.
  void Expire();
  // Incarnations removed since the last call, for any reason.
  std::vector<WorkerNumber> TakeDeparted();

  // Changes since the last call, in order. At most the first kMostChanges.
  std::vector<FleetChange> TakeChanges();

  // Workers that have joined, left, become full or no longer full, or changed in their load, work
  // or reachability since the last call, each once and in the order of their first change. Empty
  // without RegistryOptions::notes_touched.
  std::vector<WorkerNumber> TakeTouched();
  // Lets TakeTouched name the worker: something outside the registry has changed.
  void Touch(WorkerNumber number);

  // A request started on a worker, or ended there. Ignored if the worker is gone.
  void AddActive(WorkerNumber number);
  void RemoveActive(WorkerNumber number);
  // AddPrefill: the worker got a prompt to compute. RemovePrefill: it has computed the prompt or
  // never will. Pass the same `work` to both. Ignored if the worker is gone.
  void AddPrefill(WorkerNumber number, const PrefillWork& work);
  void RemovePrefill(WorkerNumber number, const PrefillWork& work);

  // Null if it is gone. Valid until the next call that changes the registry. O(log of the numbers
  // that are missing among those of the workers).
  const WorkerRecord* Find(WorkerNumber number) const;
  // Ordered by number.
  const std::vector<WorkerRecord>& workers() const { return workers_; }
  // Shapes of all workers that decode, with their number.
  const absl::flat_hash_map<RoomShape, int32_t>& room_shapes() const { return room_shapes_; }
  // Empty if there are no workers.
  const std::string& fleet_model() const { return fleet_model_; }

 private:
  using Incarnation = std::pair<std::string, Epoch>;
  WorkerRecord* FindMutable(WorkerNumber number);
  WorkerRecord* FindIncarnation(const std::string& id, Epoch epoch);
  absl::Status Check(const WorkerReport& report) const;
  absl::Status CheckPinned(const WorkerReport& report) const;
  // Checks the heartbeat of a known incarnation against its earlier one.
  absl::Status CheckUnchanged(const WorkerReport& before, const WorkerReport& report) const;
  // Checks a new incarnation that replaces the workers `taken`.
  absl::Status CheckNew(const WorkerReport& report, std::span<const WorkerNumber> taken) const;
  absl::Status CheckBackend(const WorkerReport& report, std::span<const WorkerNumber> taken) const;
  // Incarnations whose id or address this report takes over. An error if one of them is alive.
  absl::StatusOr<std::vector<WorkerNumber>> TakenOver(const WorkerReport& report) const;
  void Note(FleetChange::Kind kind, const WorkerRecord& worker);
  void NoteTouched(WorkerRecord& worker);
  // Stores the report. A new worker's record has an empty report.
  void Store(WorkerReport report, WorkerRecord& worker);
  void CountRoom(const WorkerReport& report, int32_t change);
  void RemoveAt(size_t index);
  void Bury(size_t index);  // removes it and refuses its further heartbeats

  const RegistryOptions options_;
  const Clock* const clock_;
  uint32_t next_number_ = 1;
  int64_t last_look_us_ = 0;
  int64_t next_expiry_us_ = 0;  // no worker expires at or before this time
  std::vector<WorkerRecord> workers_;
  absl::flat_hash_map<std::string, WorkerNumber> by_id_;
  absl::flat_hash_map<std::string, WorkerNumber> by_address_;
  absl::flat_hash_map<RoomShape, int32_t> room_shapes_;
  std::vector<WorkerNumber> touched_;
  std::vector<WorkerNumber> departed_;
  std::vector<FleetChange> changes_;
  std::string fleet_model_;
  std::string fleet_fingerprint_;  // of the worker that registered last
  absl::flat_hash_map<Incarnation, int64_t> buried_until_us_;
};

}  // namespace baton
