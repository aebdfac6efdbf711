// Runs a load test against a target: one run, or the runs of a rate search.
//
// Thread safety: Run belongs to one thread; Interrupt may be called from any.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/bench_flags.h"
#include "cli/load_driver.h"
#include "common/clock.h"
#include "loadtest/load_summary.h"
#include "loadtest/load_target.h"
#include "loadtest/rate_search.h"

namespace baton {

class BenchRunner {
 public:
  using ShowLine = std::function<void(const std::string&)>;  // shows the state of the run

  // All must outlive this.
  BenchRunner(const BenchFlags& flags, const BenchPlan& plan, LoadTarget& target,
              const Clock& clock, ShowLine show)
      : flags_(flags), plan_(plan), clock_(clock), driver_(target, clock), show_(std::move(show)) {}

  // `trace` is for workloads with a trace. Fails if the workload cannot be made.
  absl::StatusOr<LoadResult> Run(const std::vector<TracedRequest>& trace);
  void Interrupt() { driver_.Interrupt(); }
  bool interrupted() const { return interrupted_; }

 private:
  // One run, at `rate_per_s` if it is positive. Each step has its own prompts: otherwise caches
  // would make later steps faster.
  absl::StatusOr<LoadResult> RunOnce(const std::vector<TracedRequest>& trace, double rate_per_s,
                                     uint64_t step, int64_t max_bad);
  absl::StatusOr<LoadResult> FindRate(const std::vector<TracedRequest>& trace);
  std::string ProgressLine(const LoadProgress& progress, double rate_per_s) const;

  const BenchFlags& flags_;
  const BenchPlan& plan_;
  const Clock& clock_;
  LoadDriver driver_;
  const ShowLine show_;
  bool interrupted_ = false;
};

}  // namespace baton
