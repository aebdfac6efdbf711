// The rounds in which a router probes its workers (failure_detector.h). Each round probes every
// worker, and reports silent workers to the registry and to the calls.
//
// Pure: the caller sends the probes. The router's gRPC edge and the simulation both use this class.
//
// Thread safety: Run from one thread; OnAnswer from any thread.
#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "router/failure_detector.h"
#include "router/router_core.h"

namespace baton {

class ProbeRounds {
 public:
  // A worker that stops answering is found after at most `silence_ms`. Both pointers must outlive
  // this.
  ProbeRounds(RouterCore* core, FailureDetector* failure_detector, int64_t silence_ms)
      : core_(core), failure_detector_(failure_detector), silence_ms_(silence_ms) {}

  // Time between two rounds.
  int64_t interval_us() const { return silence_ms_ * 1000 / FailureDetector::kRoundsToSilence; }
  // `probe` sends a probe and does not wait for its answer.
  void Run(absl::FunctionRef<void(const FailureDetector::Target&)> probe);
  // `status` is the result of a probe. Only a status that the worker itself sent is an answer.
  void OnAnswer(WorkerNumber worker, const absl::Status& status);

 private:
  RouterCore* const core_;
  FailureDetector* const failure_detector_;
  const int64_t silence_ms_;
};

}  // namespace baton
