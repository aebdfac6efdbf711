// The part of an engine's interface that a worker's services use (worker_rpc/served_calls.h):
// requests, events of the prefix cache, and the watchdog. Engine and the simulation's engine
// implement it.
//
// Thread safety: every function may be called from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/kv_event_feed.h"
#include "engine/request.h"

namespace baton {

// This engine prefills chunked prompts for peers (PrefillRequest::chunked), and its tickets name
// their parts (TransferTicket::parts).
inline constexpr bool kHandsOffPromptChunks = true;

class EngineRequests {
 public:
  virtual ~EngineRequests() = default;

  // Never throws and never blocks. Validation errors and refusals reach the sink (OnError). Once
  // the integrity check has failed, Generate, Prefill, PullPrefix and SendPrefix answer Unavailable
  // forever.
  virtual RequestHandle Generate(GenerateRequest request, std::shared_ptr<RequestSink> sink) = 0;
  virtual RequestHandle Prefill(PrefillRequest request, std::shared_ptr<PrefillSink> sink) = 0;
  // Ends a request and frees its blocks at once. Its sink gets Cancelled. Ignores unknown and ended
  // handles.
  virtual void Cancel(RequestHandle handle) = 0;
  // Says that no KV will come for this transfer, so the engine must compute the prompt itself. Does
  // not wait for the loop. `done` runs exactly once and must not block. It runs on the loop thread,
  // or before this call returns if the inbox is full (ResourceExhausted) or the engine is stopping
  // (Unavailable). NotFound: the transfer is not waiting for KV.
  virtual void PrefillLocally(uint64_t transfer_id, Epoch receiver_epoch,
                              std::function<void(absl::Status)> done) = 0;

  // Pulls a prefix from another worker's cache into this one's (prefix_pull.h). Refusals reach the
  // sink. Cancel ends the pull.
  virtual RequestHandle PullPrefix(PullRequest request, std::shared_ptr<PullSink> sink) = 0;
  // Sends the cached part of a prefix to the receiver that the ticket names. The transfer continues
  // after `done`. `done` runs as in PrefillLocally, with the number of tokens that the receiver
  // will have (PrefixPulls::Send).
  virtual void SendPrefix(SendPrefixRequest request,
                          std::function<void(absl::StatusOr<int32_t>)> done) = 0;

  // Feed of the blocks that enter and leave this engine's prefix cache. Null if the engine keeps no
  // prefix cache or publishes no events (EngineOptions::kv_events). An event is published no later
  // than the end of the step in which it happened.
  virtual KvEventFeed* kv_events() = 0;
  // Passes a snapshot of the prefix cache to `done`, which runs as in PrefillLocally.
  // FailedPrecondition if kv_events() is null.
  using KvEventSnapshotDone =
      std::function<void(absl::StatusOr<std::shared_ptr<const KvEventSnapshot>>)>;
  virtual void SnapshotKvEvents(KvEventSnapshotDone done) = 0;

  // Unavailable, with the reason, if the loop hangs: one operation of a step, on a GPU a step, has
  // taken longer than EngineOptions::op_stall_ms. Also if the device has failed. Never waits for
  // the loop.
  virtual absl::Status CheckWatchdog() const = 0;
  // Internal, with the reason, if the device has failed. Then this engine can compute nothing any
  // more, and its process should end.
  virtual absl::Status DeviceHealth() const { return absl::OkStatus(); }
  virtual Epoch epoch() const = 0;
};

}  // namespace baton
