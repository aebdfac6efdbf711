// Requests that prefill for a peer: compute a prompt, draw the first tokens, hand both over.
//
// Invariants:
//  1. Every request gets exactly one OnDone.
//  2. A request lives until its hand-off has ended (handoff_sends.h); its sequence ends when all of
//     it is announced.
//  3. A request that is preempted fails. Its announced blocks stay held until the hand-off ends,
//     and the hand-off ends only when the prompt is computed: a sequence that needs the blocks and
//     this prefill would wait for each other. The receiver computes.
//
// Thread safety: belongs to the engine thread; sinks are called on it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "engine/admission.h"
#include "engine/generation.h"
#include "engine/handoff_sends.h"
#include "engine/model_limits.h"
#include "engine/request.h"
#include "engine/row_sampler.h"
#include "engine/step_pipeline.h"
#include "engine/worker_parts.h"

namespace baton {

struct PeerPrefillOptions {
  ModelLimits limits;
  bool hash_logits = false;
};

class PeerPrefills {
 public:
  // All outlive this.
  PeerPrefills(const PeerPrefillOptions& options, const WorkerParts& parts, Admission* admission,
               HandoffSends* sends, RowSampler* sampler);

  // Takes a request in. Refusals reach the sink. REQUIRES: `handle` is new.
  void Add(RequestHandle handle, PrefillRequest prefill, std::shared_ptr<PrefillSink> sink);
  // Ends a request with an error. Ignored if it has ended.
  void Fail(RequestHandle handle, const absl::Status& status);
  // The pool cannot hold the prompt.
  void EndExhausted(RequestHandle handle);

  // What a step says of sequences. REQUIRES: they are here.
  void OnAdmitted(SequenceId id);
  void OnPreempted(SequenceId id);
  StepPipeline::RowUse DescribeRow(const ScheduledChunk& chunk,
                                   std::vector<TokenDraw>& draws) const;
  void OnComputed(const ScheduledChunk& chunk, const SampledRow& row);
  // A send of the transport has ended. Ignored if the request has.
  void OnSendEvent(const TransferEvent& event);

  bool Contains(RequestHandle handle) const { return prefills_.contains(handle); }
  const std::string& Name(RequestHandle handle) const { return prefills_.at(handle)->name; }
  // Appends those of live ones.
  void AppendHandles(std::vector<RequestHandle>& handles) const;
  bool empty() const { return prefills_.empty(); }
  int64_t failures() const { return failures_; }  // ever

 private:
  struct Prefill {
    std::string name;  // the caller's
    std::shared_ptr<PrefillSink> sink;
    std::vector<TokenSource> first_tokens;  // by choice
    PrefillResult result;
    int32_t tokens = 0;  // to prefill: with what was generated elsewhere
    int64_t arrival_us = 0;
    int64_t begin_us = 0;  // when it left the queue; 0: not yet
  };

  absl::Status Check(const PrefillRequest& prefill) const;
  void Refuse(PrefillSink& sink, const absl::Status& status);
  absl::Status DrawFirst(RequestHandle handle, Prefill& prefill, const SampledRow& row);
  void End(RequestHandle handle);

  const PeerPrefillOptions options_;
  const WorkerParts parts_;
  Admission* const admission_;
  HandoffSends* const sends_;
  RowSampler* const sampler_;
  absl::flat_hash_map<RequestHandle, std::unique_ptr<Prefill>> prefills_;
  int64_t failures_ = 0;
};

}  // namespace baton
