// What a worker's services ask of its engine (worker_rpc/served_calls.h): requests, the events of
// its prefix cache, and whether it works. Engines and the simulation's engines answer it.
//
// Thread safety: every function, from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/kv_event_feed.h"
#include "engine/request.h"

namespace baton {

class EngineRequests {
 public:
  virtual ~EngineRequests() = default;

  // Validation errors and refusals reach the sink (OnError), never throw, never block. Unavailable
  // for good, as for prefills, pulls and sends, once a recount of the blocks has failed.
  virtual RequestHandle Generate(GenerateRequest request, std::shared_ptr<RequestSink> sink) = 0;
  virtual RequestHandle Prefill(PrefillRequest request, std::shared_ptr<PrefillSink> sink) = 0;
  // Ends a request and frees its blocks at once; its sink sees Cancelled. Unknown or ended handles
  // are ignored.
  virtual void Cancel(RequestHandle handle) = 0;
  // No KV will come for this transfer: prefill here. Does not wait for the loop: `done` runs once,
  // on the loop thread, or before this returns when the inbox is full (ResourceExhausted) or the
  // engine stops (Unavailable); it must not block. NotFound: the transfer is not waiting for KV.
  virtual void PrefillLocally(uint64_t transfer_id, Epoch receiver_epoch,
                              std::function<void(absl::Status)> done) = 0;

  // Brings a prefix from another worker's cache into this one's. Refusals reach the sink; Cancel
  // ends it.
  virtual RequestHandle PullPrefix(PullRequest request, std::shared_ptr<PullSink> sink) = 0;
  // Sends what is cached here of a prefix to who asked for it, and goes on with that on its own.
  // `done` runs as PrefillLocally's, with the tokens that the receiver will have
  // (PrefixPulls::Send).
  virtual void SendPrefix(SendPrefixRequest request,
                          std::function<void(absl::StatusOr<int32_t>)> done) = 0;

  // What comes into and goes from this engine's prefix cache; null when it keeps none, or tells of
  // none (EngineOptions::kv_events). An event is published at the latest with the step in which it
  // happened.
  virtual KvEventFeed* kv_events() = 0;
  // All that is there now. `done` runs as PrefillLocally's. FailedPrecondition where kv_events() is
  // null.
  using KvEventSnapshotDone =
      std::function<void(absl::StatusOr<std::shared_ptr<const KvEventSnapshot>>)>;
  virtual void SnapshotKvEvents(KvEventSnapshotDone done) = 0;

  // Unavailable, with the reason, while the loop hangs: one operation of a step has taken longer
  // than any does (EngineOptions::op_stall_ms). Never waits for the loop.
  virtual absl::Status CheckWatchdog() const = 0;
  virtual Epoch epoch() const = 0;
};

}  // namespace baton
