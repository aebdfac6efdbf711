// WorkerCore where room is short: who may come in, and a pool that changes its size or has run dry.
#include <algorithm>

#include "common/status_macros.h"
#include "common/str_cat.h"
#include "engine/worker_core.h"

namespace baton {

absl::Status WorkerCore::Admit(SequenceSpec spec, bool remote_prefill) {
  if (!remote_prefill) return Queue(std::move(spec));
  if (transport_ == nullptr) {
    return absl::FailedPreconditionError("this worker has no KV transport to receive a prefill");
  }
  // Leases give way: nobody waits for what they hold.
  if (!pulls_.has_leases()) return scheduler_->AddWaitingForKv(std::move(spec));
  absl::Status admitted = scheduler_->AddWaitingForKv(spec);
  if (!absl::IsResourceExhausted(admitted)) return admitted;
  pulls_.DropLeases();
  return scheduler_->AddWaitingForKv(std::move(spec));
}

// A full queue is no refuge from who matters more.
absl::Status WorkerCore::Queue(SequenceSpec spec) {
  if (const std::optional<SequenceId> displaced = scheduler_->ToDisplace(spec); displaced) {
    Fail(displaced->value(), absl::ResourceExhaustedError(
                                 StrCat("the queue of ", scheduler_->waiting_count(),
                                        " sequences is full, and one of priority ", spec.priority,
                                        " came; this had ", scheduler_->priority(*displaced))));
  }
  return scheduler_->Add(std::move(spec));
}

absl::Status WorkerCore::Resize(int32_t blocks) {
  RETURN_IF_ERROR(cache_->Resize(blocks));
  for (const SequenceId id : scheduler_->PoolResized()) {
    if (Request* request = Find(id.value()); request != nullptr) EndExhausted(*request);
  }
  return absl::OkStatus();
}

// The pool cannot hold the request: an answer that has begun is cut here; choices that have not
// parted have all begun or none.
void WorkerCore::EndExhausted(Request& request) {
  if (request.unforked) {
    const std::vector<Request*> choices = ChoicesOf(request.first);
    const bool begun = std::any_of(choices.begin(), choices.end(), [](const Request* choice) {
      return choice->generation->completion_tokens() > 0;
    });
    if (begun) {
      for (Request* choice : choices) Complete(*choice, FinishReason::kLength);
      return;
    }
  } else if (!request.prefills() && request.generation->completion_tokens() > 0) {
    return Complete(request, FinishReason::kLength);
  }
  const int32_t needed = scheduler_->BlocksToBegin(SequenceId(request.handle));
  Fail(request.handle,
       absl::ResourceExhaustedError(
           StrCat("the KV pool of ", cache_->num_blocks(), " blocks cannot hold the prompt of ",
                  request.prompt_tokens, " tokens, ", needed, " blocks, now")));
}

}  // namespace baton
