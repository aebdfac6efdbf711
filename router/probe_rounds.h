// The rounds in which a router probes its workers (failure_detector.h). Each round probes every
// worker, and tells the registry and the calls which workers are silent.
//
// Pure: the caller sends the probes. The router's gRPC edge and the simulation both run this.
//
// Thread safety: Run from one thread; OnAnswer from any.
#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "router/failure_detector.h"
#include "router/router_core.h"

namespace baton {

class ProbeRounds {
 public:
  // A worker that stops answering is found after at most `silence_ms`. Both outlive this.
  ProbeRounds(RouterCore* core, FailureDetector* failure_detector, int64_t silence_ms)
      : core_(core), failure_detector_(failure_detector), silence_ms_(silence_ms) {}

  // Between two rounds.
  int64_t interval_us() const { return silence_ms_ * 1000 / FailureDetector::kRoundsToSilence; }
  // `probe` sends and does not wait.
  void Run(absl::FunctionRef<void(const FailureDetector::Target&)> probe);
  // What came of a probe: only what a worker says itself is an answer.
  void OnAnswer(WorkerNumber worker, const absl::Status& status);

 private:
  RouterCore* const core_;
  FailureDetector* const failure_detector_;
  const int64_t silence_ms_;
};

}  // namespace baton
