#include "engine/admission.h"

#include <optional>
#include <utility>

#include "common/str_cat.h"

namespace baton {

Admission::Admission(const KvCacheManager* cache, Scheduler* scheduler, PrefixPulls* pulls,
                     EndRequest end_request)
    : cache_(cache), scheduler_(scheduler), pulls_(pulls), end_request_(std::move(end_request)) {}

absl::Status Admission::Queue(SequenceSpec spec) {
  if (const std::optional<SequenceId> displaced = scheduler_->ToDisplace(spec); displaced) {
    end_request_(HandleOf(*displaced),
                 absl::ResourceExhaustedError(
                     StrCat("the queue of ", scheduler_->waiting_count(),
                            " sequences is full; a request of priority ", spec.priority,
                            " displaced this one of priority ", scheduler_->priority(*displaced))));
  }
  return scheduler_->Add(std::move(spec));
}

absl::Status Admission::AdmitForKv(SequenceSpec spec, bool queues) {
  absl::Status admitted = scheduler_->AddWaitingForKv(spec);
  if (absl::IsResourceExhausted(admitted) && pulls_->has_leases()) {
    pulls_->DropLeases();
    admitted = scheduler_->AddWaitingForKv(spec);
  }
  if (!queues || !absl::IsResourceExhausted(admitted)) return admitted;
  spec.awaits_kv = true;
  return Queue(std::move(spec));
}

void Admission::YieldLeases(const SchedulerOutput& plan, int32_t in_flight) {
  if (!pulls_->has_leases()) return;
  const bool admits = !plan.admitted.empty() || !plan.awaiting_kv.empty();
  const bool stuck = scheduler_->waiting_count() > 0 && !admits;
  const bool nothing_runs = plan.chunks.empty() && plan.awaiting_kv.empty() && in_flight == 0;
  if (stuck || nothing_runs || !plan.preempted.empty()) pulls_->DropLeases();
}

absl::Status Admission::Exhausted(SequenceId id, int32_t prompt_tokens) const {
  return absl::ResourceExhaustedError(
      StrCat("the KV pool of ", cache_->num_blocks(), " blocks cannot hold the prompt of ",
             prompt_tokens, " tokens, which needs ", scheduler_->BlocksToBegin(id), " blocks now"));
}

int32_t Admission::SpareBlocks() const {
  return scheduler_->waiting_count() + scheduler_->running_count() +
         scheduler_->waiting_for_kv_count();
}

}  // namespace baton
