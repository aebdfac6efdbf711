// Pipeline of a worker's steps: plans, submits and collects them, with up to `depth` steps in
// flight.
//
// While one step runs, the next one is planned after its chunks and the tokens that it draws
// (scheduler.h). At Collect the step's chunks are committed and its tokens are given to the
// requests, in the order of the plan. A stop condition becomes visible only at Collect. The next
// step may then have a row for an ended sequence; that row's result is discarded.
//
// A failed step fails every request in it and in the next step. If the device has failed, they fail
// as Unavailable: no later request can succeed here, but another worker can continue them.
//
// Watchdog: a step of an asynchronous device must be done in the watchdog's time, counted from the
// end of the step before it, or from its submission. Where the device asks a step's row limits
// while it runs, each question feeds the watchdog too.
//
// Thread safety: engine thread only. A step's runner calls some functions between ops; these use
// only the step's StepDemand and the watchdog.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cache/kv_cache_manager.h"
#include "common/clock.h"
#include "engine/loop_watchdog.h"
#include "engine/pending_cancellations.h"
#include "engine/step_demand.h"
#include "engine/step_frames.h"
#include "model/model_runner.h"
#include "scheduler/scheduler.h"

namespace baton {

// A row of logits that a step computed, and the tokens drawn from it.
struct SampledRow {
  StepId step;
  int32_t row = 0;                                 // in the step's logits
  int32_t position = 0;                            // the slot that the new token will take
  std::span<const absl::StatusOr<TokenId>> drawn;  // empty: the host must draw
  std::span<const float> changes = {};             // of a chunk that compares: one for each token
};

class StepPipeline {
 public:
  // How a sampled row is used.
  struct RowUse {
    bool keeps_logits = false;
    bool draws_next = false;  // ScheduledChunk::draws_next
  };
  // Callbacks to the requests that own the sequences in the steps.
  class Requests {
   public:
    virtual ~Requests() = default;
    // Called after a step is planned, before it is submitted, also if it has no chunk. May finish
    // the sequences that the plan names as exhausted, but no other sequence of the plan.
    virtual void OnPlanned(const SchedulerOutput& plan) = 0;
    // Called after that, when the copies of blocks that the plan needs have been made or enqueued.
    virtual void OnCopied() {}
    virtual StepDemand::Chunk DemandOf(SequenceId id) const = 0;
    // Appends to `draws` how to draw the tokens after a chunk that samples.
    virtual RowUse DescribeRow(const ScheduledChunk& chunk, std::vector<TokenDraw>& draws) = 0;
    // Returns StepInput::kv_written for the step; may be null.
    virtual std::function<void(int32_t layers, int32_t chunks)> LayerListener(
        const SchedulerOutput& plan) = 0;
    // Called when a step has succeeded or failed, before its chunks are committed. In this and the
    // calls below, a sequence may have ended meanwhile.
    virtual void OnCollected(const SchedulerOutput& plan) = 0;
    virtual void OnFailed(SequenceId id, const absl::Status& why) = 0;
    // The chunk is committed. `row` is valid only if the chunk samples.
    virtual void OnComputed(const ScheduledChunk& chunk, const SampledRow& row) = 0;
    // Called after a step, when all its chunks were given out. `us` runs from its submission, or
    // from the end of the step before it. Not called for a step that was not submitted.
    virtual void OnStepEnded(int64_t /*us*/) {}
    // No step uses a cancelled request's blocks any more. `us`: time since the cancellation came.
    virtual void OnCancellationDone(int64_t /*us*/) {}
  };

  // All pointers must outlive the pipeline. REQUIRES: 1 <= depth <= runner->max_in_flight().
  StepPipeline(int32_t depth, KvCacheManager* cache, Scheduler* scheduler, ModelRunner* runner,
               const Clock* clock, Requests* requests);
  ~StepPipeline();

  void set_pending_cancellations(PendingCancellations* pending) {
    pending_cancellations_ = pending;
  }
  void set_watchdog(LoopWatchdog* watchdog) { watchdog_ = watchdog; }
  // Limits of the runner; without them there are none.
  void set_frame_limits(const FrameLimits& limits) { frame_limits_ = limits; }

  int32_t in_flight() const { return static_cast<int32_t>(steps_.size()); }
  // True if Step would do something now.
  bool has_work() const { return CanSubmit() || CanCollect(); }
  // Collects the oldest step if it is done, and submits steps up to the depth. Never waits for a
  // step of an asynchronous device.
  void Step();
  // Lets the runner report layers that are written.
  void Poll();
  // Removes an ended request from the pending cancellations, once the steps now in flight are
  // collected. Their runners may look it up until then.
  void RemovePendingCancellation(RequestHandle request);

  // Copies blocks before the next step runs. The blocks may change owner as soon as this returns.
  absl::Status CopyBlocks(std::span<const BlockCopy> copies);

 private:
  struct InFlightStep {
    StepId id;
    SchedulerOutput plan;
    std::unique_ptr<StepDemand> demand;
    std::vector<int32_t> draw_ends;        // end of each chunk's draws among all draws of the step
    std::vector<RequestHandle> cancelled;  // removed from the pending cancellations at Collect
    size_t first_comparison = 0;           // chunks from here on compare
    bool compares(size_t chunk) const { return chunk >= first_comparison; }
    // False while Submit runs. Questions about rows before that say nothing about an earlier step.
    std::atomic<bool> submitted = false;
    int64_t submitted_us = 0;
    int32_t DrawsBefore(size_t chunk) const { return chunk == 0 ? 0 : draw_ends[chunk - 1]; }
  };

  bool CanSubmit() const { return in_flight() < depth_ && scheduler_->has_work(); }
  bool CanCollect() const { return !steps_.empty() && runner_->Done(steps_.front()->id); }
  // Returns false if there was nothing to compute.
  bool Submit();
  void Collect();
  std::unique_ptr<StepDemand> DemandFor(const SchedulerOutput& plan) const;
  StepInput MakeInput(InFlightStep& step);
  DrawnBy DrawOf(SequenceId id, size_t& search_from) const;
  void GiveOut(const InFlightStep& step, const StepResult& result);
  void FailFrom(const InFlightStep& step, int32_t first_chunk, const absl::Status& why);
  void CancellationDone(RequestHandle request);
  void EndCopies();
  // Returns the status that a request gets for an error of the runner.
  absl::Status ReasonOf(const absl::Status& error) const;

  const int32_t depth_;
  KvCacheManager* const cache_;
  Scheduler* const scheduler_;
  ModelRunner* const runner_;
  const Clock* const clock_;
  Requests* const requests_;
  PendingCancellations* pending_cancellations_ = nullptr;
  LoopWatchdog* watchdog_ = nullptr;
  std::optional<FrameLimits> frame_limits_;
  int64_t last_end_us_ = 0;                          // of a step
  std::deque<std::unique_ptr<InFlightStep>> steps_;  // the oldest first
  std::vector<TokenDraw> draws_;                     // of the step being submitted
  StepFrames frames_;                                // of the step being submitted
};

}  // namespace baton
