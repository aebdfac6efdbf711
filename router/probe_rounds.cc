#include "router/probe_rounds.h"

namespace baton {

void ProbeRounds::Run(absl::FunctionRef<void(const FailureDetector::Target&)> probe) {
  for (const FailureDetector::Target& target : failure_detector_->Round(core_->Workers())) {
    probe(target);
  }
  for (const WorkerNumber worker : core_->SetSilent(failure_detector_->Silent())) {
    for (const auto& listener : failure_detector_->ListenersOf(worker)) {
      listener->OnWorkerSilent(worker);
    }
  }
}

void ProbeRounds::OnAnswer(WorkerNumber worker, const absl::Status& status) {
  // A worker of the previous version does not know Ping, but its error is an answer.
  if (!status.ok() && !absl::IsUnimplemented(status)) return;
  failure_detector_->OnAnswer(worker);
  core_->MarkReachable(worker);
}

}  // namespace baton
