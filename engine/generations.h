// The requests that draw tokens here: from the prompt's admission to the last answer's end.
//
// Invariants:
//  1. Every request gets exactly one terminal call on its sink: OnFinish of its last choice, or
//     OnError.
//  2. Choices share the prompt's computation, by forks, and then are sequences of their own. The
//     request ends with the last of them; a failure ends them all.
//  3. A choice ends through End, for every reason. Its blocks go back there.
//  4. A request that waits for KV always continues: with the blocks of the transfer, or, if it
//     fails, by computing them here.
//
// Thread safety: belongs to the engine thread; sinks are called on it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
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

  // All outlive this.
  Generations(const ChoiceOptions& options, const WorkerParts& parts, Admission* admission,
              HandoffReceives* receives, RowSampler* sampler, CopyBlocks copy_blocks);

  // Takes a request in. Refusals reach the sink. REQUIRES: `first` and the handles of its other
  // choices, first + 1 to first + n - 1, are new.
  void Add(RequestHandle first, GenerateRequest generate, std::shared_ptr<RequestSink> sink);
  // Ends the request of a choice with an error, all its choices. Ignored if the choice has ended.
  void Fail(RequestHandle handle, const absl::Status& status);
  // Ends the request that `first` names with Cancelled.
  void Cancel(RequestHandle first);
  // Ends what is past its deadline. Returns the earliest deadline left.
  std::optional<int64_t> CheckDeadlines();
  // The pool cannot hold the choice. An answer that has begun ends with finish reason `length`, a
  // request without one with ResourceExhausted. Before the fork, either all choices
  // have generated tokens or none has.
  void EndExhausted(RequestHandle handle);

  // What a step says of sequences. REQUIRES: they are here.
  void OnAdmitted(SequenceId id);
  StepDemand::Chunk DemandOf(SequenceId id) const;
  StepPipeline::RowUse DescribeRow(const ScheduledChunk& chunk,
                                   std::vector<TokenDraw>& draws) const;
  // Ignored for sequences that have ended meanwhile.
  void OnPreempted(SequenceId id);
  void OnComputed(const ScheduledChunk& chunk, const SampledRow& row);
  // A transfer for which a request waited has ended. Ignored if the request has.
  void OnReceived(const ReceivedHandoff& received);

  bool Contains(RequestHandle handle) const { return choices_.Find(handle) != nullptr; }
  bool empty() const { return choices_.empty(); }
  const LiveChoices& choices() const { return choices_; }
  int64_t failures() const { return failures_; }  // ever

 private:
  void Refuse(RequestSink& sink, const absl::Status& status);
  void Complete(Choice& choice, FinishReason reason);
  void End(Choice& choice);
  absl::Status ExpectKv(Choice& choice);
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
