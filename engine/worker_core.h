// A worker's decisions: requests, steps and transfers as machines with no thread, socket or clock
// of their own.
//
//   generations.h       requests that draw tokens here
//   peer_prefills.h     requests that prefill for a peer
//   handoff_sends.h     their blocks, on the way to the peer
//   handoff_receives.h  KV that comes from a peer
//   prefix_pull.h       cached prefixes from and to other workers
//   admission.h         who comes in, and what gives way
//   step_pipeline.h     steps: planned, submitted, collected
//
// The core owns them and passes events on: calls from outside, steps, transfer events. Answers
// leave through the requests' sinks and posts on the transport.
//
// Invariants:
//  1. Every request gets exactly one terminal call on its sink.
//  2. A transfer's blocks are held from the post until its terminal event was polled, also when its
//     request ended earlier.
//  3. A request sees a step's results at Collect. What a step computes for a request that has ended
//     is thrown away.
//
// Thread safety: belongs to the engine thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cache/kv_cache_manager.h"
#include "common/clock.h"
#include "engine/admission.h"
#include "engine/generations.h"
#include "engine/handoff_receives.h"
#include "engine/handoff_sends.h"
#include "engine/layer_pieces.h"
#include "engine/loop_watchdog.h"
#include "engine/peer_prefills.h"
#include "engine/pending_cancellations.h"
#include "engine/prefix_pull.h"
#include "engine/request.h"
#include "engine/row_sampler.h"
#include "engine/step_pipeline.h"
#include "engine/worker_parts.h"
#include "kvtransfer/transport.h"
#include "model/model_runner.h"
#include "scheduler/scheduler.h"
#include "text/tokenizer.h"

namespace baton {

struct WorkerCoreOptions {
  int32_t vocabulary = 0;
  int32_t context_length = 0;  // tokens, prompt and answer
  int32_t block_size = 16;
  bool hash_logits = false;
  int32_t steps_in_flight = 1;  // at most the runner's max_in_flight
  int64_t transfer_timeout_ms = 120'000;
  LayerPieces::Options layer_pieces = {.layers = 1, .bytes_per_token = 1, .pieces = 1};
};

struct WorkerCounters {
  int64_t steps = 0;
  int64_t prefill_tokens = 0;
  int64_t decode_tokens = 0;
  int64_t requests = 0;
  int64_t failures = 0;
};

class WorkerCore final : private StepPipeline::Requests {
 public:
  // Everything outlives the core. `transport` may be null: then nothing is sent or received.
  // `random_bits` names transfers. A peer that announces an id owns the transfer, so ids must not
  // be guessable.
  WorkerCore(const WorkerCoreOptions& options, KvCacheManager* cache, Scheduler* scheduler,
             ModelRunner* runner, KvTransport* transport, const Tokenizer* tokenizer,
             const Clock* clock, std::function<uint64_t()> random_bits);
  ~WorkerCore() override;

  // Handles are unique and rising; a request has one for each of its choices, the first of which
  // names it: the next request's is request.n further on.
  void AddGenerate(RequestHandle handle, GenerateRequest request,
                   std::shared_ptr<RequestSink> sink);
  void AddPrefill(RequestHandle handle, PrefillRequest request, std::shared_ptr<PrefillSink> sink);
  // Takes the request off the pending cancellations, where steps in flight may find it until they
  // end.
  void Cancel(RequestHandle handle);
  // Tells of cancellations that are on their way here. Steps look at it between their ops, as at
  // deadlines, and stop computing what no request wants (step_demand.h). Outlives the core; null:
  // none is told.
  void set_pending_cancellations(PendingCancellations* pending) {
    pipeline_.set_pending_cancellations(pending);
  }
  // Beats between the operations of a step.
  void set_watchdog(LoopWatchdog* watchdog) { pipeline_.set_watchdog(watchdog); }
  // No KV will come for this transfer: prefill here (HandoffReceives::GiveUp).
  absl::Status PrefillLocally(uint64_t transfer_id, Epoch receiver_epoch);
  // A prefix comes from, or goes to, another worker's cache (prefix_pull.h). Cancel ends a pull
  // too.
  void PullPrefix(RequestHandle handle, PullRequest request, std::shared_ptr<PullSink> sink);
  absl::StatusOr<int32_t> SendPrefix(RequestHandle handle, const SendPrefixRequest& request);
  // Grows or shrinks the pool (KvCacheManager::Resize), between steps. A request that waits and can
  // never fit the new one ends: with ResourceExhausted, or, preempted in mid-answer, with finish
  // reason `length`.
  absl::Status Resize(int32_t blocks);

  void PollTransfers();
  // Ends what is past its deadline, leases of pulled prefixes too. Returns the earliest one left,
  // if any.
  std::optional<int64_t> CheckDeadlines();

  // Step would do something now.
  bool has_work() const { return pipeline_.has_work(); }
  // Completes the step that is done, and submits what there is to compute. With an inline device
  // one step runs from its plan to its tokens; an asynchronous one is never waited for.
  void Step() { pipeline_.Step(); }
  // Announces what an asynchronous device has computed of the step that runs.
  void PollSteps() { pipeline_.Poll(); }
  int32_t steps_in_flight() const { return pipeline_.in_flight(); }

  // Ends every request with `status`; transfers are cancelled and must still be polled until
  // idle().
  void Shutdown(const absl::Status& status);
  bool idle() const {
    return generations_.empty() && prefills_.empty() && active_transfers() == 0 && pulls_.idle() &&
           pipeline_.in_flight() == 0;
  }

  // Recounts the cache, the holds of transfers and steps, and, when idle, that nothing uses a
  // block. Internal, with the numbers, names what differs. O(blocks + nodes).
  absl::Status CheckConservation() const;

  WorkerCounters counters() const;
  int32_t active_transfers() const {
    return receives_.active() + sends_.active() + pulls_.active_transfers();
  }
  // What a live request, or one of its choices, is and does.
  struct Liveness {
    std::string name;       // the caller's
    bool delivers = false;  // its sequence has ended; else it has one, or will be forked from one
  };
  Liveness Describe(RequestHandle handle) const;  // REQUIRES: live
  std::vector<RequestHandle> Handles() const;     // of live ones

 private:
  uint64_t NewTransferId() const;
  void Fail(RequestHandle handle, const absl::Status& status);
  void EndExhausted(RequestHandle handle);

  void OnPlanned(const SchedulerOutput& plan) override;
  StepDemand::Chunk DemandOf(SequenceId id) const override;
  StepPipeline::RowUse DescribeRow(const ScheduledChunk& chunk,
                                   std::vector<TokenDraw>& draws) override;
  std::function<void(int32_t layers, int32_t chunks)> LayerListener(
      const SchedulerOutput& plan) override;
  void OnCollected(const SchedulerOutput& plan) override;
  void ReportWritten(const SchedulerOutput& plan, int32_t group);
  void OnFailed(SequenceId id, const absl::Status& why) override;
  void OnComputed(const ScheduledChunk& chunk, const SampledRow& row) override;

  const WorkerCoreOptions options_;
  const WorkerParts parts_;
  const ModelLimits limits_;
  const std::function<uint64_t()> random_bits_;
  PrefixPulls pulls_;
  HandoffReceives receives_;
  HandoffSends sends_;
  Admission admission_;
  RowSampler sampler_;
  Generations generations_;
  PeerPrefills prefills_;
  StepPipeline pipeline_;
  WorkerCounters counters_;  // failures: as the machines count them
};

}  // namespace baton
