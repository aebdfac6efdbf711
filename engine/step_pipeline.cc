#include "engine/step_pipeline.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/str_cat.h"
#include "engine/prefix_order.h"

namespace baton {

StepPipeline::StepPipeline(int32_t depth, KvCacheManager* cache, Scheduler* scheduler,
                           ModelRunner* runner, const Clock* clock, Requests* requests)
    : depth_(depth),
      cache_(cache),
      scheduler_(scheduler),
      runner_(runner),
      clock_(clock),
      requests_(requests) {
  CHECK(depth >= 1 && depth <= runner->max_in_flight())
      << depth << " steps in flight; the device allows " << runner->max_in_flight();
}

StepPipeline::~StepPipeline() { CHECK(steps_.empty()) << "a step is in flight"; }

void StepPipeline::Step() {
  if (CanCollect()) Collect();
  while (CanSubmit() && Submit()) {
  }
  if (CanCollect()) Collect();  // an inline device is done already
}

void StepPipeline::Poll() {
  if (!steps_.empty()) runner_->Poll();
}

void StepPipeline::RemovePendingCancellation(RequestHandle request) {
  if (pending_cancellations_ == nullptr) return;
  if (steps_.empty()) return CancellationDone(request);
  steps_.back()->cancelled.push_back(request);
}

void StepPipeline::CancellationDone(RequestHandle request) {
  const std::optional<int64_t> since_us = pending_cancellations_->Remove(request);
  if (since_us.has_value()) requests_->OnCancellationDone(clock_->NowUs() - *since_us);
}

// ---- copies -------------------------------------------------------------------------------------

absl::Status StepPipeline::CopyBlocks(std::span<const BlockCopy> copies) {
  if (copies.empty()) return absl::OkStatus();
  if (!steps_.empty()) {
    // The copies run after the steps in flight.
    for (const BlockCopy& copy : copies) {
      const BlockId blocks[] = {copy.from, copy.to};
      scheduler_->step_holds().HoldForNext(blocks, copy.group);
    }
  }
  return ReasonOf(runner_->CopyBlocks(copies));
}

absl::Status StepPipeline::ReasonOf(const absl::Status& error) const {
  if (error.ok() || runner_->Health().ok()) return error;
  return absl::UnavailableError(StrCat("this worker cannot compute any more: ", error.message()));
}

// If no step is in flight, waits for pending copies and releases their blocks. Otherwise the
// Collect of a later step does that.
void StepPipeline::EndCopies() {
  if (!steps_.empty() || !scheduler_->step_holds().holds_for_next()) return;
  runner_->CopyBlocks({}).IgnoreError();  // a failed device reports it at the next step
  scheduler_->step_holds().ReleaseForNext();
}

// ---- submit -------------------------------------------------------------------------------------

std::unique_ptr<StepDemand> StepPipeline::DemandFor(const SchedulerOutput& plan) const {
  std::vector<StepDemand::Chunk> chunks;
  chunks.reserve(plan.chunks.size());
  for (const ScheduledChunk& chunk : plan.chunks) chunks.push_back(requests_->DemandOf(chunk.id));
  return std::make_unique<StepDemand>(std::move(chunks), pending_cancellations_, clock_);
}

// Returns the draw of the newest step in flight that yields the pending token of `id`. Rows keep
// their order from step to step, so the search continues where the last one ended.
DrawnBy StepPipeline::DrawOf(SequenceId id, size_t& search_from) const {
  CHECK(!steps_.empty()) << "sequence " << id << " has a pending token but no step is in flight";
  const InFlightStep& before = *steps_.back();
  const std::vector<ScheduledChunk>& chunks = before.plan.chunks;
  for (size_t looked_at = 0; looked_at < chunks.size(); ++looked_at) {
    const size_t i = (search_from + looked_at) % chunks.size();
    if (chunks[i].id != id) continue;
    CHECK(chunks[i].draws_next) << "the step draws no token for sequence " << id;
    search_from = i + 1;
    return {.step = before.id, .draw = before.DrawsBefore(i)};
  }
  LOG(FATAL) << "sequence " << id << " has a pending token that the previous step does not draw";
}

StepInput StepPipeline::MakeInput(InFlightStep& step) {
  static constexpr TokenId kPlaceholder[] = {0};
  StepInput input;
  input.chunks.reserve(step.plan.chunks.size());
  step.draw_ends.reserve(step.plan.chunks.size());
  draws_.clear();
  frames_.Clear();
  size_t search_from = 0;
  for (ScheduledChunk& chunk : step.plan.chunks) {
    StepChunk& made = input.chunks.emplace_back();
    if (chunk.pending) {
      made.tokens = kPlaceholder;
      made.token_from = DrawOf(chunk.id, search_from);
    } else {
      made.tokens = scheduler_->tokens(chunk.id).subspan(chunk.begin, chunk.count);
    }
    if (chunk.framed) {
      frames_.Describe(*scheduler_->frame(chunk.id), cache_->BlockTable(chunk.id), chunk.begin,
                       cache_->options().block_size, made);
    } else {
      made.begin_slot = made.begin_position = chunk.begin;
      made.block_table = cache_->BlockTable(chunk.id);
    }
    for (int32_t group = 1; group < cache_->groups(); ++group) {
      made.window_tables[static_cast<size_t>(group) - 1] = cache_->BlockTable(chunk.id, group);
    }
    if (chunk.samples) {
      made.logit_rows = 1;
      const RowUse use = requests_->DescribeRow(chunk, draws_);
      made.keeps_logits = use.keeps_logits;
      chunk.draws_next = use.draws_next;
    }
    step.draw_ends.push_back(static_cast<int32_t>(draws_.size()));
    if (!made.compares) step.first_comparison = input.chunks.size();
  }
  for (size_t i = 0; i < input.chunks.size(); ++i) {  // draws_ no longer reallocates
    const int32_t begin = step.DrawsBefore(i);
    input.chunks[i].draws = std::span(draws_).subspan(begin, step.draw_ends[i] - begin);
  }
  input.wanted = [this, &step, alone = steps_.empty()] {
    if (watchdog_ != nullptr && (alone || step.submitted)) watchdog_->Feed();
    return step.demand->Update();
  };
  input.kv_written = requests_->LayerListener(step.plan);
  return input;
}

bool StepPipeline::Submit() {
  auto step = std::make_unique<InFlightStep>();
  step->plan = scheduler_->Schedule();
  if (frame_limits_.has_value()) FitFrames(*scheduler_, *frame_limits_, step->plan);
  if (runner_->shares_prefixes()) PutSharedPrefixesTogether(*cache_, step->plan);
  PutComparisonsLast(*scheduler_, step->plan);
  requests_->OnPlanned(step->plan);
  // Copy even if nothing runs. The sequence that asked for a copy may be preempted already, and
  // blocks change owner before the next step.
  const absl::Status copied = CopyBlocks(cache_->TakeCopies());
  requests_->OnCopied();
  if (step->plan.chunks.empty()) return false;
  step->demand = DemandFor(step->plan);
  step->submitted_us = clock_->NowUs();
  absl::StatusOr<StepId> id = StepId();
  if (copied.ok()) {
    id = runner_->Submit(MakeInput(*step));
  } else {
    id = copied;
  }
  if (!id.ok()) {
    requests_->OnCollected(step->plan);
    FailFrom(*step, 0, ReasonOf(id.status()));
    EndCopies();
    return true;
  }
  step->id = *id;
  step->submitted = true;
  scheduler_->StepSubmitted(step->plan);
  steps_.push_back(std::move(step));
  return true;
}

// ---- collect ------------------------------------------------------------------------------------

void StepPipeline::FailFrom(const InFlightStep& step, int32_t first_chunk,
                            const absl::Status& why) {
  const auto chunks = static_cast<int32_t>(step.plan.chunks.size());
  for (int32_t i = first_chunk; i < chunks; ++i) {
    const absl::Status unwanted = step.demand->WhyUnwanted(i);
    requests_->OnFailed(step.plan.chunks[i].id, unwanted.ok() ? why : unwanted);
  }
}

void StepPipeline::Collect() {
  const std::unique_ptr<InFlightStep> step = std::move(steps_.front());
  absl::StatusOr<StepResult> result = runner_->Collect(step->id);
  if (!result.ok()) result = ReasonOf(result.status());
  steps_.pop_front();
  const int64_t begun_us = std::max(step->submitted_us, last_end_us_);
  last_end_us_ = clock_->NowUs();
  const int64_t took_us = last_end_us_ - begun_us;
  if (watchdog_ != nullptr) watchdog_->Feed();
  scheduler_->StepCollected(step->plan);
  for (const RequestHandle request : step->cancelled) CancellationDone(request);
  EndCopies();
  requests_->OnCollected(step->plan);
  // Chunks after the last wanted one may be partly computed. They are not committed.
  FailFrom(*step, result.ok() ? step->demand->wanted() : 0, result.status());
  if (result.ok()) GiveOut(*step, *result);
  requests_->OnStepEnded(took_us);
  if (result.ok() || absl::IsCancelled(result.status())) return;
  for (const auto& behind : steps_) {
    for (const ScheduledChunk& chunk : behind->plan.chunks) {
      requests_->OnFailed(chunk.id, result.status());
    }
  }
}

void StepPipeline::GiveOut(const InFlightStep& step, const StepResult& result) {
  scheduler_->CommitStep(step.plan);
  const std::span<const absl::StatusOr<TokenId>> drawn = result.drawn;
  SampledRow row{.step = step.id, .drawn = {}, .changes = {}};
  std::span<const float> changes = result.changes;
  for (size_t i = 0; i < step.plan.chunks.size(); ++i) {
    const ScheduledChunk& chunk = step.plan.chunks[i];
    const int32_t begin = step.DrawsBefore(i);
    row.position = chunk.begin + chunk.count;
    row.drawn = drawn.subspan(begin, step.draw_ends[i] - begin);
    row.changes = step.compares(i) ? changes.first(static_cast<size_t>(chunk.count))
                                   : std::span<const float>();
    changes = changes.subspan(row.changes.size());
    requests_->OnComputed(chunk, row);
    if (chunk.samples) ++row.row;
  }
}

}  // namespace baton
