// Runs jobs through several routers, one at a time. If one is unreachable, lost or draining, the
// next one is asked. Jobs can be repeated.
//
// A round asks every router once, first the one that answered last. It continues with the next
// router after Unavailable, and after Cancelled if this process did not cancel. After a failed
// round, the next one begins after a backoff, at most `retries` times. An answer is delivered once
// and complete: a job is repeated only while none of its text was passed to `on_text`, and the
// results of a failed attempt are dropped. A job without a seed gets a new seed in each attempt.
//
// Thread safety: Run and Pieces from many threads at once; Interrupt from any.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cli/job_runner.h"
#include "common/sampling_defaults.h"

namespace baton {

struct FailoverOptions {
  int32_t retries = 0;
  // Wait before the second round. Each later wait is twice as long, up to the longest.
  std::chrono::milliseconds first_backoff{200};
  std::chrono::milliseconds longest_backoff{2000};
};

class FailoverRunner final : public JobRunner {
 public:
  // REQUIRES: routers is not empty.
  FailoverRunner(std::vector<std::unique_ptr<JobRunner>> routers, const FailoverOptions& options);

  // Returns the last router's error, with the mark of NotBegun if no attempt began.
  absl::StatusOr<std::vector<JobResult>> Run(
      const Job& job, const std::function<void(std::string_view)>& on_text) override;
  // Asks every router once, until one answers.
  absl::StatusOr<std::vector<std::string>> Pieces(const std::vector<TokenId>& tokens) override;
  // Repeats rounds as Run does, because a job's answer depends on this.
  absl::StatusOr<SamplingDefaults> RecommendedSampling() override;
  void Interrupt() override;

 private:
  // Calls `ask` with one router after the other, until it returns anything but an error for which
  // the next router is asked. Repeats the round up to `retries` times.
  template <typename Answer, typename Ask>
  Answer AskRouters(int32_t retries, const Ask& ask);
  // Returns true if the next router is asked after the error `status`.
  bool IsForTheNext(const absl::Status& status);
  // Waits. Returns false if it was interrupted.
  bool Wait(std::chrono::milliseconds backoff);

  const std::vector<std::unique_ptr<JobRunner>> routers_;
  const FailoverOptions options_;
  std::atomic<size_t> first_ = 0;  // index of the router that is asked first
  std::mutex mutex_;
  std::condition_variable interrupt_;
  bool interrupted_ = false;  // guarded by mutex_
};

}  // namespace baton
