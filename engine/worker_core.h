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
//  3. Requests that wait for KV continue whatever happens to the transfer: with its blocks, or by
//     computing them here.
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
#include "engine/generation.h"
#include "engine/request.h"
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
  int64_t transfer_timeout_ms = 120'000;
};

struct WorkerCounters {
  int64_t steps = 0;
  int64_t prefill_tokens = 0;
  int64_t decode_tokens = 0;
  int64_t requests = 0;
  int64_t failures = 0;
};

class WorkerCore {
 public:
  // Everything outlives the core. `transport` may be null: then nothing is sent or received.
  // `random_bits` names transfers: who announces one first owns it, so its id must not be guessed.
  WorkerCore(const WorkerCoreOptions& options, KvCacheManager* cache, Scheduler* scheduler,
             ModelRunner* runner, KvTransport* transport, const Tokenizer* tokenizer,
             const Clock* clock, std::function<uint64_t()> random_bits);
  ~WorkerCore();

  // Handles are unique and rising.
  void AddGenerate(RequestHandle handle, GenerateRequest request,
                   std::shared_ptr<RequestSink> sink);
  void AddPrefill(RequestHandle handle, PrefillRequest request, std::shared_ptr<PrefillSink> sink);
  void Cancel(RequestHandle handle);
  absl::Status PrefillLocally(uint64_t transfer_id, Epoch receiver_epoch);
  // Grows or shrinks the pool (KvCacheManager::Resize), between steps. Who waits and can never fit
  // the new one ends: with ResourceExhausted, or, preempted in mid-answer, with finish reason
  // `length`.
  absl::Status Resize(int32_t blocks);

  void PollTransfers();
  // Ends what is past its deadline. Returns the earliest deadline left, if any.
  std::optional<int64_t> CheckDeadlines();

  bool has_work() const { return scheduler_->has_work(); }
  // Schedules, runs and completes one step.
  void Step();

  // Ends every request with `status`; transfers are cancelled and must still be polled until
  // idle().
  void Shutdown(const absl::Status& status);
  bool idle() const { return requests_.empty() && receives_.empty() && sends_.empty(); }

  const WorkerCounters& counters() const { return counters_; }
  int32_t active_transfers() const {
    return static_cast<int32_t>(receives_.size() + sends_.size());
  }
  // The caller's name of a live request; empty if unknown.
  std::string RequestName(RequestHandle handle) const;
  std::vector<RequestHandle> Handles() const;

 private:
  // A live request: either generates or prefills for a peer.
  struct Request {
    RequestHandle handle = 0;
    std::string name;
    std::shared_ptr<RequestSink> sink;  // generates
    std::unique_ptr<Generation> generation;
    std::shared_ptr<PrefillSink> prefill_sink;  // prefills for a peer
    std::unique_ptr<TokenSource> first_token;
    PrefillResult prefill_result;
    TransferTicket ticket;         // prefills: the receiver's
    uint64_t transfer_id = 0;      // generates: of the KV it waits for; 0: none
    int32_t prompt_tokens = 0;     // to prefill: with what was generated elsewhere
    int32_t resumed_tokens = 0;    // of them, generated elsewhere
    int32_t announced_blocks = 0;  // in sequence order, from ticket.first_block on
    int64_t arrival_us = 0;
    int64_t deadline_us = 0;       // 0: none
    int64_t prefill_begin_us = 0;  // when it left the queue for the first time; 0: not yet
    bool prefills() const { return prefill_sink != nullptr; }
  };
  // What a transfer holds, alive until its terminal event.
  struct TransferHold {
    RequestHandle request = 0;
    std::vector<BlockId> blocks;
    int32_t prompt_tokens = 0;
    bool cancelled = false;
  };

  absl::Status Validate(std::span<const TokenId> prompt, const GeneratedPart& generated,
                        const SamplingParams& sampling) const;
  absl::Status CheckTokens(const char* field, std::span<const TokenId> tokens) const;
  absl::Status Admit(Request& request, GenerateRequest& generate, int32_t length_limit);
  absl::Status Queue(SequenceSpec spec);
  absl::Status ExpectKv(Request& request);
  uint64_t NewTransferId();
  void ComputeLocally(Request& request, int32_t landed_blocks);

  void Reject(Request& request, const absl::Status& status);
  void Fail(RequestHandle handle, const absl::Status& status);
  void Complete(Request& request, FinishReason reason);
  void EndExhausted(Request& request);
  void End(RequestHandle handle, bool keep_cached);

  void NoteScheduled(const SchedulerOutput& plan);
  StepInput MakeInput(const SchedulerOutput& plan) const;
  void NotePrefill(Request& request, int32_t computed);
  void CompleteChunk(const ScheduledChunk& chunk, int32_t logits_row);
  void TakeToken(Request& request, const HandoffManifest& drawn);
  void NoteWritten(const SchedulerOutput& plan);
  void AnnounceComputed(Request& request);
  void Deliver(Request& request, const HandoffManifest& drawn);

  void OnReceiveEvent(TransferEvent& event);
  void OnKvReceived(Request& request, const TransferEvent& event);
  void OnSendEvent(const TransferEvent& event);
  void Release(absl::flat_hash_map<uint64_t, TransferHold>& holds, uint64_t id);

  Request* Find(RequestHandle handle);

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
  WorkerCounters counters_;
  Sampler sampler_;
};

}  // namespace baton
