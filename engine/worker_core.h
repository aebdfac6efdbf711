// Makes a worker's decisions about requests, steps and transfers. It is a set of state machines
// without threads, sockets or clocks, so tests and the simulation can drive it.
//
//   generations.h       requests that draw tokens here
//   peer_prefills.h     requests that prefill for a peer
//   handoff_sends.h     outgoing KV of such prefills
//   handoff_receives.h  incoming KV from a peer
//   part_sends.h        outgoing parts of chunked prompts
//   part_receives.h     incoming parts of chunked prompts
//   prefix_pull.h       cached prefixes from and to other workers
//   chunk_pulls.h       cached prompt chunks from and to other workers
//   prompt_parts.h      parts of chunked prompts, and the chunk cache
//   chunk_tier.h        prompt chunks that sleep in host memory
//   admission.h         admission control: queueing, displacement, dropping leases
//   step_pipeline.h     steps: planned, submitted, collected
//
// The core owns these machines and dispatches events to them: calls, steps and transfer events.
// Answers leave through the requests' sinks, posts through the transport.
//
// Invariants:
//  1. Every request gets exactly one terminal call on its sink.
//  2. A transfer's blocks are held from the post until its terminal event was polled, even if its
//     request ends earlier.
//  3. A request gets a step's results at Collect. Results for a request that has ended are
//     discarded.
//  4. Two workers never wait for each other's prefills. A worker that computes no prompt, and lacks
//     room for the prompts that peers wait for, computes a prompt itself that it expects from a
//     peer. It has that prompt's blocks already (docs/decisions/0046).
//
// Thread safety: engine thread only.
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
#include "engine/chunk_mover.h"
#include "engine/chunk_pulls.h"
#include "engine/chunk_tier.h"
#include "engine/generations.h"
#include "engine/handoff_receives.h"
#include "engine/handoff_sends.h"
#include "engine/layer_pieces.h"
#include "engine/loop_watchdog.h"
#include "engine/part_receives.h"
#include "engine/part_sends.h"
#include "engine/peer_prefills.h"
#include "engine/pending_cancellations.h"
#include "engine/prefill_pace.h"
#include "engine/prefix_pull.h"
#include "engine/prompt_parts.h"
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
  PromptPartsOptions prompt_parts = {};
  ChunkTierOptions chunk_tier = {};
  MetricSet* metrics = nullptr;  // outlives the core; null: nothing is counted
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
  // All pointers must outlive the core. `transport` may be null: then nothing is sent or received.
  // `random_bits` generates transfer ids. A peer that announces an id owns the transfer, so ids
  // must not be guessable. `mover` copies chunks that sleep; null: no chunk sleeps.
  WorkerCore(const WorkerCoreOptions& options, KvCacheManager* cache, Scheduler* scheduler,
             ModelRunner* runner, KvTransport* transport, const Tokenizer* tokenizer,
             const Clock* clock, std::function<uint64_t()> random_bits,
             ChunkMover* mover = nullptr);
  ~WorkerCore() override;

  // Adds a request. Handles are unique and rising. Each choice of a generate request has a handle,
  // and the first one names the request. So the next request's handle is at least request.n higher.
  void AddGenerate(RequestHandle handle, GenerateRequest request,
                   std::shared_ptr<RequestSink> sink);
  void AddPrefill(RequestHandle handle, PrefillRequest request, std::shared_ptr<PrefillSink> sink);
  // Cancels a request, and removes it from the pending cancellations. Steps in flight may still
  // find it there until they are collected.
  void Cancel(RequestHandle handle);
  // Sets the cancellations that steps read between their ops. A step stops computing chunks that
  // were cancelled or are past their deadline (step_demand.h). `pending` must outlive the core.
  // Null: steps see no cancellations.
  void set_pending_cancellations(PendingCancellations* pending) {
    pipeline_.set_pending_cancellations(pending);
  }
  // Sets the watchdog that steps feed between their operations.
  void set_watchdog(LoopWatchdog* watchdog) { pipeline_.set_watchdog(watchdog); }
  // Says that no KV will come for this transfer, so the prompt is computed here
  // (HandoffReceives::GiveUp).
  absl::Status PrefillLocally(uint64_t transfer_id, Epoch receiver_epoch);
  // Pulls a prefix or chunks from another worker's cache, or sends them to it (prefix_pull.h,
  // chunk_pulls.h). Cancel ends a pull too.
  void PullPrefix(RequestHandle handle, PullRequest request, const std::shared_ptr<PullSink>& sink);
  absl::StatusOr<int32_t> SendPrefix(RequestHandle handle, const SendPrefixRequest& request);
  // Grows or shrinks the pool (KvCacheManager::Resize), between steps. Ends waiting requests that
  // can never fit the new size. They end with ResourceExhausted, or with finish reason `length` if
  // they were preempted in mid-answer.
  absl::Status Resize(int32_t blocks);
  // Forgets cached prefixes and prompt chunks, or those of one namespace, with the answers behind
  // its chunks. Returns the number of blocks freed at once.
  int32_t ClearCache(std::optional<CacheNamespace> only);
  // The same for prompt chunks alone.
  int32_t ClearChunks(std::optional<CacheNamespace> only) { return prompt_parts_.Clear(only); }
  ChunkCacheStats chunk_stats() const { return prompt_parts_.Stats(); }
  SleepingChunkStats sleeping_stats() const { return chunk_tier_.Stats(); }
  PromptChunkSupport chunk_support() const { return prompt_parts_.Support(); }
  std::vector<ChunkCache::EntryInfo> chunk_entries() const { return prompt_parts_.Entries(); }

  // Handles transfers that have ended, and chunks that fell asleep or were woken. Lets cold chunks
  // fall asleep.
  void PollTransfers();
  // Ends requests past their deadline and expired leases. Returns the earliest deadline or expiry
  // left, if any.
  std::optional<int64_t> CheckDeadlines();

  // True if Step would do something now.
  bool has_work() const { return pipeline_.has_work(); }
  // Collects the step that is done, and submits the next ones. An inline device runs one step from
  // plan to tokens. An asynchronous device is never waited for.
  void Step() { pipeline_.Step(); }
  // Announces the layers that an asynchronous device has computed in the running step.
  void PollSteps() { pipeline_.Poll(); }
  int32_t steps_in_flight() const { return pipeline_.in_flight(); }

  // Ends every request with `status` and cancels transfers. The caller must still poll until
  // idle().
  void Shutdown(const absl::Status& status);
  bool idle() const {
    return generations_.empty() && prefills_.empty() && active_transfers() == 0 && pulls_.idle() &&
           chunk_pulls_.idle() && prompt_parts_.idle() && chunk_tier_.idle() &&
           pipeline_.in_flight() == 0;
  }

  // Checks the block accounting: recounts the cache and the holds of transfers and steps. When
  // idle, also checks that no block is in use. Internal names the difference, with the numbers.
  // O(blocks + nodes).
  absl::Status CheckConservation() const;

  WorkerCounters counters() const;
  // Expected time to compute so many prompt tokens; 0 before the first prompt.
  int64_t PrefillUs(int64_t tokens) const { return pace_.UsFor(tokens); }
  int32_t active_transfers() const {
    return receives_.active() + sends_.active() + part_receives_.active() + part_sends_.active() +
           pulls_.active_transfers() + chunk_pulls_.active();
  }
  // State of a live request or of one of its choices.
  struct Liveness {
    std::string name;       // given by the caller
    bool delivers = false;  // its sequence has ended; its KV is still being sent
  };
  Liveness Describe(RequestHandle handle) const;  // REQUIRES: live
  std::vector<RequestHandle> Handles() const;     // of live requests

 private:
  uint64_t NewTransferId() const;
  void OnTransferEvent(const TransferEvent& event);
  void TellAboutParts();
  void PollTier();
  void CopyForRepairs();
  void TakeOverHandoff();
  void Fail(RequestHandle handle, const absl::Status& status);
  void EndExhausted(RequestHandle handle);

  void OnPlanned(const SchedulerOutput& plan) override;
  void OnCopied() override { chunk_tier_.StartWakes(); }
  StepDemand::Chunk DemandOf(SequenceId id) const override;
  StepPipeline::RowUse DescribeRow(const ScheduledChunk& chunk,
                                   std::vector<TokenDraw>& draws) override;
  std::function<void(int32_t layers, int32_t chunks)> LayerListener(
      const SchedulerOutput& plan) override;
  void OnCollected(const SchedulerOutput& plan) override;
  void ReportWritten(const SchedulerOutput& plan, int32_t group);
  void OnFailed(SequenceId id, const absl::Status& why) override;
  void OnComputed(const ScheduledChunk& chunk, const SampledRow& row) override;
  void OnStepEnded(int64_t us) override;
  void OnCancellationDone(int64_t us) override { parts_.metrics.Cancelled(us); }

  const WorkerCoreOptions options_;
  ChunkTier chunk_tier_;
  PromptParts prompt_parts_;
  const WorkerParts parts_;
  const ModelLimits limits_;
  const std::function<uint64_t()> random_bits_;
  PrefixPulls pulls_;
  HandoffReceives receives_;
  HandoffSends sends_;
  PartReceives part_receives_;
  PartSends part_sends_;
  ChunkPulls chunk_pulls_;
  Admission admission_;
  RowSampler sampler_;
  Generations generations_;
  PeerPrefills prefills_;
  StepPipeline pipeline_;
  WorkerCounters counters_;   // without failures, which the machines count
  WorkerCounters last_step_;  // counters_ at the end of the last step
  PrefillPace pace_;
};

}  // namespace baton
