#include "cli/failover_runner.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace baton {

FailoverRunner::FailoverRunner(std::vector<std::unique_ptr<JobRunner>> routers,
                               const FailoverOptions& options)
    : routers_(std::move(routers)), options_(options) {
  CHECK(!routers_.empty()) << "there is no router";
}

absl::StatusOr<std::vector<JobResult>> FailoverRunner::Run(
    const Job& job, const std::function<void(std::string_view)>& on_text) {
  bool passed_on = false;
  std::function<void(std::string_view)> watched;
  if (on_text) {
    watched = [&](std::string_view text) {
      passed_on = true;
      on_text(text);
    };
  }
  bool begun = false;
  std::chrono::milliseconds backoff = options_.first_backoff;
  for (int32_t round = 0;; ++round) {
    const size_t first = first_.load();
    absl::Status failure;
    for (size_t i = 0; i < routers_.size(); ++i) {
      size_t router = (first + i) % routers_.size();
      absl::StatusOr<std::vector<JobResult>> results = routers_[router]->Run(job, watched);
      if (results.ok()) return results;
      failure = results.status();
      begun |= !IsNotBegun(failure);
      if (begun) failure = AsBegun(std::move(failure));
      if (passed_on || !IsForTheNext(failure)) return failure;
      // Has no effect if another job has already changed it.
      first_.compare_exchange_strong(router, (router + 1) % routers_.size());
    }
    if (round >= options_.retries || !Wait(backoff)) return failure;
    backoff = std::min(2 * backoff, options_.longest_backoff);
  }
}

template <typename Answer, typename Ask>
Answer FailoverRunner::AskRouters(int32_t retries, const Ask& ask) {
  std::chrono::milliseconds backoff = options_.first_backoff;
  for (int32_t round = 0;; ++round) {
    const size_t first = first_.load();
    absl::Status failure;
    for (size_t i = 0; i < routers_.size(); ++i) {
      Answer answer = ask(*routers_[(first + i) % routers_.size()]);
      if (answer.ok() || !IsForTheNext(answer.status())) return answer;
      failure = answer.status();
    }
    if (round >= retries || !Wait(backoff)) return failure;
    backoff = std::min(2 * backoff, options_.longest_backoff);
  }
}

absl::StatusOr<std::vector<std::string>> FailoverRunner::Pieces(
    const std::vector<TokenId>& tokens) {
  return AskRouters<absl::StatusOr<std::vector<std::string>>>(
      /*retries=*/0, [&tokens](JobRunner& router) { return router.Pieces(tokens); });
}

absl::StatusOr<SamplingDefaults> FailoverRunner::RecommendedSampling() {
  return AskRouters<absl::StatusOr<SamplingDefaults>>(
      options_.retries, [](JobRunner& router) { return router.RecommendedSampling(); });
}

void FailoverRunner::Interrupt() {
  {
    std::lock_guard lock(mutex_);
    interrupted_ = true;
  }
  interrupt_.notify_all();
  for (const std::unique_ptr<JobRunner>& router : routers_) router->Interrupt();
}

bool FailoverRunner::IsForTheNext(const absl::Status& status) {
  if (!absl::IsUnavailable(status) && !absl::IsCancelled(status)) return false;
  std::lock_guard lock(mutex_);
  return !interrupted_;
}

bool FailoverRunner::Wait(std::chrono::milliseconds backoff) {
  std::unique_lock lock(mutex_);
  return !interrupt_.wait_for(lock, backoff, [this] { return interrupted_; });
}

}  // namespace baton
