// Requests that prefill for a peer: each computes a prompt, draws the first tokens, and hands both
// over.
//
// Invariants:
//  1. Every request gets exactly one OnDone.
//  2. A request lives until its hand-off has ended (handoff_sends.h). Its sequence ends earlier,
//     once everything is announced.
//  3. A preempted request fails, and the receiver computes the prompt. Otherwise there would be a
//     deadlock. Its announced blocks stay held until the hand-off ends, and the hand-off cannot end
//     before the prompt is computed. A sequence that needs those blocks and this prefill would wait
//     for each other.
//  4. A part of a chunked prompt that the receiver lacks is sent when it is done (part_sends.h).
//     The request ends when all these parts and the question have been sent.
//
// Thread safety: engine thread only; sinks are called on it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cache/chunk_layout.h"
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
  // All pointers must outlive this.
  PeerPrefills(const PeerPrefillOptions& options, const WorkerParts& parts, Admission* admission,
               HandoffSends* sends, RowSampler* sampler);

  // Adds a request. Refusals reach the sink. REQUIRES: `handle` is new.
  void Add(RequestHandle handle, PrefillRequest prefill, std::shared_ptr<PrefillSink> sink);
  // Ends a request with an error. Ignores ended requests.
  void Fail(RequestHandle handle, const absl::Status& status);
  // Ends a request because the pool cannot hold its prompt.
  void EndExhausted(RequestHandle handle);

  // Events of a step. REQUIRES: the sequences are in this object.
  void OnAdmitted(SequenceId id);
  void OnPreempted(SequenceId id);
  StepPipeline::RowUse DescribeRow(const ScheduledChunk& chunk,
                                   std::vector<TokenDraw>& draws) const;
  void OnComputed(const ScheduledChunk& chunk, const SampledRow& row);
  // Handles the end of a send. Ignored if the request has ended.
  void OnSendEvent(const TransferEvent& event);
  // Parts of a chunked prompt are done, or a send of a part has ended. Ignored if the request has
  // ended.
  void OnPartsDone(RequestHandle handle);
  void OnPartsSent(RequestHandle handle);

  bool Contains(RequestHandle handle) const { return prefills_.contains(handle); }
  const std::string& Name(RequestHandle handle) const { return prefills_.at(handle)->name; }
  // Appends the handles of live requests.
  void AppendHandles(std::vector<RequestHandle>& handles) const;
  bool empty() const { return prefills_.empty(); }
  // Returns true if there are requests, and every one still has its sequence: none is only being
  // sent.
  bool NoneDelivers() const;
  int64_t failures() const { return failures_; }  // since the start

 private:
  struct Prefill {
    std::string name;  // given by the caller
    std::shared_ptr<PrefillSink> sink;
    std::vector<TokenSource> first_tokens;  // by choice
    PrefillResult result;
    int32_t tokens = 0;  // tokens to prefill, including those that another worker generated
    // A chunked prompt: tokens of its parts, and the position of the sequence's slot 0.
    bool chunked = false;
    int32_t part_tokens = 0;
    int32_t first_position = 0;
    int64_t arrival_us = 0;
    int64_t begin_us = 0;      // when it first left the queue; 0: not yet
    int64_t delivered_us = 0;  // when the receiver had the question; 0: not yet
  };
  using Layout = std::shared_ptr<const ChunkLayout>;

  // Checks the request. Returns the layout of a chunked prompt, else null. A chunked prompt that is
  // all question becomes an ordinary one.
  absl::StatusOr<Layout> Check(PrefillRequest& prefill) const;
  absl::StatusOr<Layout> PlanParts(PrefillRequest& prefill) const;
  absl::Status Queue(RequestHandle handle, const Prefill& made, PrefillRequest& prefill,
                     const Layout& layout);
  absl::Status StartSends(RequestHandle handle, const Prefill& made, const PrefillRequest& prefill,
                          const Layout& layout);
  void NoteParts(RequestHandle handle, Prefill& prefill);
  void EndIfSent(RequestHandle handle, Prefill& prefill);
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
