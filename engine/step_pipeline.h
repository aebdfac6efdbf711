// The steps of a worker: planned, submitted and collected, up to `depth` of them in flight.
//
// While one step runs, the next one is planned behind it: behind its chunks, and behind the tokens
// that it draws (scheduler.h). At Collect its chunks are committed and its tokens given out, in the
// order of the plan. A stop that is seen only then costs the sequence's row in the step behind: its
// result is thrown away.
//
// A failed step fails everything in it, and everything in the step behind it.
//
// Thread safety: belongs to the engine thread. The functions that a step's runner calls between ops
// use the step's StepDemand and the watchdog alone.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cache/kv_cache_manager.h"
#include "common/clock.h"
#include "engine/loop_watchdog.h"
#include "engine/pending_cancellations.h"
#include "engine/step_demand.h"
#include "model/model_runner.h"
#include "scheduler/scheduler.h"

namespace baton {

// A row of logits that a step computed, and what it drew from it.
struct SampledRow {
  StepId step;
  int32_t row = 0;                                 // of the step's logits
  int32_t position = 0;                            // the slot that the new token will take
  std::span<const absl::StatusOr<TokenId>> drawn;  // empty: the host is to draw
};

class StepPipeline {
 public:
  // How a sampled row is used.
  struct RowUse {
    bool keeps_logits = false;
    bool draws_next = false;  // ScheduledChunk::draws_next
  };
  // The requests whose sequences the steps compute.
  class Requests {
   public:
    virtual ~Requests() = default;
    // A step is planned. Called before it is submitted, also when it has no chunk; what it names as
    // exhausted may be finished here, other sequences of the plan may not.
    virtual void OnPlanned(const SchedulerOutput& plan) = 0;
    virtual StepDemand::Chunk DemandOf(SequenceId id) const = 0;
    // Appends how the tokens behind a chunk that samples are drawn.
    virtual RowUse DescribeRow(const ScheduledChunk& chunk, std::vector<TokenDraw>& draws) = 0;
    // StepInput::kv_written of a step; may be null.
    virtual std::function<void(int32_t layers, int32_t chunks)> LayerListener(
        const SchedulerOutput& plan) = 0;
    // A step is over, well or not; what it wrote is not committed yet. This and all below may find
    // that a sequence has ended meanwhile.
    virtual void OnCollected(const SchedulerOutput& plan) = 0;
    virtual void OnFailed(SequenceId id, const absl::Status& why) = 0;
    // The chunk is committed. `row` means something if it samples.
    virtual void OnComputed(const ScheduledChunk& chunk, const SampledRow& row) = 0;
  };

  // Everything outlives the pipeline. REQUIRES: 1 <= depth <= runner->max_in_flight().
  StepPipeline(int32_t depth, KvCacheManager* cache, Scheduler* scheduler, ModelRunner* runner,
               const Clock* clock, Requests* requests);
  ~StepPipeline();

  void set_pending_cancellations(PendingCancellations* pending) {
    pending_cancellations_ = pending;
  }
  void set_watchdog(LoopWatchdog* watchdog) { watchdog_ = watchdog; }

  int32_t in_flight() const { return static_cast<int32_t>(steps_.size()); }
  // Step would do something now.
  bool has_work() const { return CanSubmit() || CanCollect(); }
  // Collects what is done and submits what there is to compute, as far as the depth goes. Never
  // waits for a step of an asynchronous device.
  void Step();
  // Has the runner tell of layers that are written.
  void Poll();
  // A cancelled request has ended. It leaves the pending cancellations when the steps in flight are
  // collected: until then their runners look there.
  void RemovePendingCancellation(RequestHandle request);

  // Copies blocks ahead of the next step. The blocks may change hands at once.
  absl::Status CopyBlocks(std::span<const BlockCopy> copies);

 private:
  struct InFlightStep {
    StepId id;
    SchedulerOutput plan;
    std::unique_ptr<StepDemand> demand;
    std::vector<int32_t> draw_ends;        // of each chunk, among all draws of the step
    std::vector<RequestHandle> cancelled;  // leave the pending cancellations with this step
    int32_t DrawsBefore(size_t chunk) const { return chunk == 0 ? 0 : draw_ends[chunk - 1]; }
  };

  bool CanSubmit() const { return in_flight() < depth_ && scheduler_->has_work(); }
  bool CanCollect() const { return !steps_.empty() && runner_->Done(steps_.front()->id); }
  // False when there was nothing to compute.
  bool Submit();
  void Collect();
  std::unique_ptr<StepDemand> DemandFor(const SchedulerOutput& plan) const;
  StepInput MakeInput(InFlightStep& step);
  DrawnBy DrawOf(SequenceId id, size_t& search_from) const;
  void GiveOut(const InFlightStep& step, const StepResult& result);
  void FailFrom(const InFlightStep& step, int32_t first_chunk, const absl::Status& why);
  void EndCopies();

  const int32_t depth_;
  KvCacheManager* const cache_;
  Scheduler* const scheduler_;
  ModelRunner* const runner_;
  const Clock* const clock_;
  Requests* const requests_;
  PendingCancellations* pending_cancellations_ = nullptr;
  LoopWatchdog* watchdog_ = nullptr;
  std::deque<std::unique_ptr<InFlightStep>> steps_;  // the oldest first
  std::vector<TokenDraw> draws_;                     // of the step that is being submitted
};

}  // namespace baton
