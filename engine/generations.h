// Requests that draw tokens on this worker, from admission of the prompt to the end of the last
// answer.
//
// Invariants:
//  1. Every request gets exactly one terminal call on its sink: OnFinish of its last choice, or
//     OnError.
//  2. Choices share the computation of the prompt. Then each becomes a forked sequence of its own.
//     The request ends with its last choice; a failure ends all of them.
//  3. Every choice ends in End, for any reason, and End releases its blocks.
//  4. A request that waits for KV always continues. It uses the blocks of the transfer, or computes
//     the rest of the prompt here if the transfer fails. A chunked prompt waits for the question
//     and for every missing part. Each of them may come from the peer or be computed here.
//
// Thread safety: engine thread only; sinks are called on it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cache/chunk_layout.h"
#include "engine/admission.h"
#include "engine/handoff_receives.h"
#include "engine/live_choices.h"
#include "engine/new_choices.h"
#include "engine/request.h"
#include "engine/row_sampler.h"
#include "engine/step_pipeline.h"
#include "engine/worker_parts.h"

namespace baton {

class Generations {
 public:
  // Copies blocks ahead of the next step (StepPipeline::CopyBlocks).
  using CopyBlocks = std::function<absl::Status(std::span<const BlockCopy>)>;

  // All pointers must outlive this.
  Generations(const ChoiceOptions& options, const WorkerParts& parts, Admission* admission,
              HandoffReceives* receives, RowSampler* sampler, CopyBlocks copy_blocks);

  // Adds a request. Refusals reach the sink. The request's choices use the handles `first` to first
  // + n - 1. REQUIRES: these handles are new.
  void Add(RequestHandle first, GenerateRequest generate, std::shared_ptr<RequestSink> sink);
  // Ends the request that the choice belongs to, with all its choices, with an error. Ignores ended
  // choices.
  void Fail(RequestHandle handle, const absl::Status& status);
  // Ends the request with first handle `first` with Cancelled.
  void Cancel(RequestHandle first);
  // Ends requests past their deadline. Returns the earliest deadline that is left.
  std::optional<int64_t> CheckDeadlines();
  // Ends a choice that the pool cannot hold. If an answer has begun, it ends with finish reason
  // `length`. If not, the request ends with ResourceExhausted. Before the fork, either all choices
  // have generated tokens or none has, so all of them end the same way.
  void EndExhausted(RequestHandle handle);

  // Events of a step. REQUIRES: the sequences are in this object.
  void OnAdmitted(SequenceId id);
  void OnRoomForKv(SequenceId id);  // of a request with queues_for_kv: it has left the queue
  StepDemand::Chunk DemandOf(SequenceId id) const;
  StepPipeline::RowUse DescribeRow(const ScheduledChunk& chunk,
                                   std::vector<TokenDraw>& draws) const;
  // These two ignore sequences that have ended.
  void OnPreempted(SequenceId id);
  void OnComputed(const ScheduledChunk& chunk, const SampledRow& row);
  // Handles the end of the transfer that a request waited for. Ignored if the request has ended.
  void OnReceived(const ReceivedHandoff& received);
  // All parts of a chunked prompt are done. Ignored if the request has ended, or if the question
  // has not been received.
  void OnPartsDone(RequestHandle handle);

  bool Contains(RequestHandle handle) const { return choices_.Find(handle) != nullptr; }
  bool empty() const { return choices_.empty(); }
  const LiveChoices& choices() const { return choices_; }
  int64_t failures() const { return failures_; }  // since the start

 private:
  void Refuse(RequestSink& sink, const absl::Status& status);
  // Checks a chunked prompt and makes its layout. Null for other prompts. A chunked prompt that is
  // all question becomes an ordinary one.
  absl::StatusOr<std::shared_ptr<const ChunkLayout>> PlanParts(GenerateRequest& generate) const;
  absl::Status Admit(SequenceSpec spec, NewChoices& choices,
                     const std::shared_ptr<const ChunkLayout>& layout,
                     const GenerateRequest& generate, int64_t plan_us);
  void Complete(Choice& choice, FinishReason reason);
  void End(Choice& choice);
  absl::Status ExpectKv(Choice& choice);
  void TakeReceived(Choice& choice, const ReceivedHandoff& received);
  void NoteReceivedParts(Choice& choice, const ReceivedHandoff& received);
  void TakeHandoff(Choice& choice, const ReceivedHandoff& received);
  void ComputeLocally(Choice& choice, int32_t landed_blocks);
  void NotePrefill(Choice& choice, int32_t computed);
  absl::Status DrawNext(Choice& choice, const SampledRow& row);
  absl::Status DrawFirst(Choice& computed, const SampledRow& row);
  void Fork(Choice& computed, std::span<const DrawnToken> first_tokens);
  void TakeToken(Choice& choice, const DrawnToken& drawn);

  const ChoiceOptions options_;
  const WorkerParts parts_;
  Admission* const admission_;
  HandoffReceives* const receives_;
  RowSampler* const sampler_;
  const CopyBlocks copy_blocks_;
  LiveChoices choices_;
  int64_t failures_ = 0;
};

}  // namespace baton
