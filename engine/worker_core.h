// A worker's decisions: requests, steps and transfers as one state machine with no thread, socket
// or clock of its own.
//
// Events come in as calls, answers leave through the requests' sinks and posts on the transport. A
// request ends through End, whatever the reason; its blocks go back there. A transfer's own holds
// live on until the transport has reported its terminal event.
//
// Invariants:
//  1. Every request gets exactly one terminal call on its sink.
//  2. A transfer's blocks are held from the post until its terminal event was polled, also when its
//     request ended earlier.
//  3. The choices of a request (answers to its prompt) share its computation, by forks, and then
//     are sequences of their own. The request ends with the last of them; a failure ends them all.
//  4. Steps are planned, submitted and collected by the step pipeline; a request sees a step's
//     results at Collect. What a step computes for a request that has ended is thrown away.
//  5. Requests that wait for KV always continue: with the blocks of the transfer, or, if it fails,
//     by computing them here.
//
// Thread safety: belongs to the engine thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "cache/kv_cache_manager.h"
#include "common/clock.h"
#include "engine/cancel_board.h"
#include "engine/generation.h"
#include "engine/layer_pieces.h"
#include "engine/loop_pulse.h"
#include "engine/prefix_pull.h"
#include "engine/request.h"
#include "engine/step_pipeline.h"
#include "kvtransfer/protocol/transfer_plan.h"
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
  // `random_bits` names transfers: who announces one first owns it, so its id must not be guessed.
  WorkerCore(const WorkerCoreOptions& options, KvCacheManager* cache, Scheduler* scheduler,
             ModelRunner* runner, KvTransport* transport, const Tokenizer* tokenizer,
             const Clock* clock, std::function<uint64_t()> random_bits);
  ~WorkerCore() override;

  // Handles are unique and rising; a request has one for each of its choices, the first of which
  // names it: the next request's is request.n further on.
  void AddGenerate(RequestHandle handle, GenerateRequest request,
                   std::shared_ptr<RequestSink> sink);
  void AddPrefill(RequestHandle handle, PrefillRequest request, std::shared_ptr<PrefillSink> sink);
  // Takes the request off the cancel board, where steps in flight may find it until they end.
  void Cancel(RequestHandle handle);
  // What tells of cancellations that are on their way here: looked at between the ops of a step,
  // as deadlines are, so that it stops computing what nobody wants (step_demand.h). Outlives the
  // core; null: none is told.
  void set_cancel_board(CancelBoard* board) { pipeline_.set_cancel_board(board); }
  // Beats between the operations of a step.
  void set_pulse(LoopPulse* pulse) { pipeline_.set_pulse(pulse); }
  absl::Status PrefillLocally(uint64_t transfer_id, Epoch receiver_epoch);
  // A prefix comes from, or goes to, another worker's cache (prefix_pull.h). Cancel ends a pull
  // too.
  void PullPrefix(RequestHandle handle, PullRequest request, std::shared_ptr<PullSink> sink);
  absl::StatusOr<int32_t> SendPrefix(RequestHandle handle, const SendPrefixRequest& request);
  // Grows or shrinks the pool (KvCacheManager::Resize), between steps. Who waits and can never fit
  // the new one ends: with ResourceExhausted, or, preempted in mid-answer, with finish reason
  // `length`.
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
    return requests_.empty() && receives_.empty() && sends_.empty() && pulls_.idle() &&
           pipeline_.in_flight() == 0;
  }

  // Recounts the cache, the holds of transfers and steps, and, when idle, that nothing uses a
  // block. Internal, with the numbers, names what differs. O(blocks + nodes).
  absl::Status CheckConservation() const;

  const WorkerCounters& counters() const { return counters_; }
  int32_t active_transfers() const {
    return static_cast<int32_t>(receives_.size() + sends_.size()) + pulls_.active_transfers();
  }
  // What a live request, or one of its choices, is and does.
  struct Liveness {
    std::string name;       // the caller's
    bool delivers = false;  // its sequence has ended; else it has one, or will be forked from one
  };
  Liveness Describe(RequestHandle handle) const;  // REQUIRES: live
  std::vector<RequestHandle> Handles() const;     // of live ones

 private:
  // A live request: either prefills for a peer or generates, and then it is one of its choices.
  struct Request {
    RequestHandle handle = 0;
    RequestHandle first = 0;  // of the request's choices, also when that one has ended
    int32_t n = 1;
    int32_t choice = 0;
    bool unforked = false;      // the first choice that goes on computes the prompt for all
    std::vector<TokenId> tail;  // of an unforked one: generated elsewhere
    std::string name;
    std::shared_ptr<RequestSink> sink;  // generates
    std::unique_ptr<Generation> generation;
    std::shared_ptr<PrefillSink> prefill_sink;  // prefills for a peer
    std::vector<TokenSource> first_tokens;      // by choice
    PrefillResult prefill_result;
    TransferTicket ticket;         // prefills: the receiver's
    uint64_t transfer_id = 0;      // generates: of the KV it waits for; 0: none
    int32_t prompt_tokens = 0;     // to prefill: with what was generated elsewhere
    int32_t resumed_tokens = 0;    // of them, generated elsewhere
    SequenceBlocks to_send;        // prefills: our blocks that hold what the receiver lacks
    int32_t announced_blocks = 0;  // of them, as a whole
    std::vector<BlockId> rest;     // all others, once layers of them are announced; held
    int64_t arrival_us = 0;
    int64_t deadline_us = 0;       // 0: none
    int64_t prefill_begin_us = 0;  // when it left the queue for the first time; 0: not yet
    bool prefills() const { return prefill_sink != nullptr; }
    // One of the answers that it draws tokens for; their sampling parameters are the same.
    const TokenSource& any_source() const {
      return prefills() ? first_tokens.front() : generation->source();
    }
  };
  // What a transfer holds, alive until its terminal event.
  struct TransferHold {
    RequestHandle request = 0;
    std::vector<BlockId> blocks;
    int32_t prompt_tokens = 0;
    bool cancelled = false;
  };

  // The choices of a request that is new here.
  struct NewChoices {
    std::vector<std::unique_ptr<Request>> live;
    std::vector<FinishInfo> finished;  // their worker was lost between last token and end
  };

  absl::Status Validate(std::span<const TokenId> prompt, int32_t n,
                        std::span<const GeneratedPart> generated,
                        const SamplingParams& sampling) const;
  absl::Status CheckTokens(const char* field, std::span<const TokenId> tokens) const;
  absl::StatusOr<NewChoices> MakeChoices(RequestHandle handle, const GenerateRequest& generate,
                                         std::shared_ptr<RequestSink> sink);
  SequenceSpec DescribeSequence(NewChoices& choices, GenerateRequest& generate) const;
  absl::Status Admit(SequenceSpec spec, bool remote_prefill);
  int32_t LengthLimit(const GenerateRequest& generate) const;
  absl::Status Queue(SequenceSpec spec);
  absl::Status ExpectKv(Request& request);
  uint64_t NewTransferId();
  absl::Status CheckPrefix(std::span<const TokenId> tokens) const;
  void YieldLeases(const SchedulerOutput& plan);
  void ComputeLocally(Request& request, int32_t landed_blocks);

  void Reject(RequestSink& sink, const absl::Status& status);
  void Reject(Request& request, const absl::Status& status);
  void Fail(RequestHandle handle, const absl::Status& status);
  void Complete(Request& request, FinishReason reason);
  void EndExhausted(Request& request);
  void End(RequestHandle handle, bool keep_cached);

  void OnPlanned(const SchedulerOutput& plan) override;
  StepDemand::Chunk DemandOf(SequenceId id) const override;
  StepPipeline::RowUse DescribeRow(const ScheduledChunk& chunk,
                                   std::vector<TokenDraw>& draws) override;
  std::function<void(int32_t layers, int32_t chunks)> LayerListener(
      const SchedulerOutput& plan) override;
  void OnCollected(const SchedulerOutput& plan) override;
  void OnFailed(SequenceId id, const absl::Status& why) override;
  void OnComputed(const ScheduledChunk& chunk, const SampledRow& row) override;

  void NoteScheduled(const SchedulerOutput& plan);
  void NotePrefill(Request& request, int32_t computed);
  // Token number `index` of the row.
  absl::StatusOr<DrawnToken> TakeDrawn(const TokenSource& source, const SampledRow& row,
                                       size_t index);
  absl::Status DrawNext(Request& request, const SampledRow& row);
  absl::Status DrawChoices(Request& request, const SampledRow& row);
  absl::Status DrawForPeer(Request& request, const SampledRow& row);
  void TakeToken(Request& request, const DrawnToken& drawn);
  void Fork(Request& request, std::span<const DrawnToken> first_tokens);
  void AnnounceComputed(Request& request);
  void AnnounceLayers(Request& request, int32_t layers);
  void HoldForSend(const Request& request, std::span<const BlockId> blocks);
  std::span<const BlockId> RestToAnnounce(const Request& request) const;
  void Deliver(Request& request, const HandoffManifest& manifest);

  void OnReceiveEvent(TransferEvent& event);
  void OnKvReceived(Request& request, const TransferEvent& event);
  void OnSendEvent(const TransferEvent& event);
  void Release(absl::flat_hash_map<uint64_t, TransferHold>& holds, uint64_t id);

  Request* Find(RequestHandle handle);
  // The live ones, in order, of the request that `first` names.
  std::vector<Request*> ChoicesOf(RequestHandle first);

  const WorkerCoreOptions options_;
  KvCacheManager* const cache_;
  Scheduler* const scheduler_;
  ModelRunner* const runner_;
  KvTransport* const transport_;
  const Tokenizer* const tokenizer_;
  const Clock* const clock_;
  const std::function<uint64_t()> random_bits_;
  absl::flat_hash_map<RequestHandle, std::unique_ptr<Request>> requests_;
  absl::flat_hash_map<uint64_t, TransferHold> receives_;  // by transfer_id
  absl::flat_hash_map<uint64_t, TransferHold>
      sends_;  // by sender_transfer, which is the request's handle
  PrefixPulls pulls_;
  LayerPieces layer_pieces_;
  WorkerCounters counters_;
  Sampler sampler_;
  StepPipeline pipeline_;
};

}  // namespace baton
