// A service of known times, played in simulated time with the production LoadRun and AnswerTimer.
//
// It answers one request after the other. Each takes `prefill_us` to its first content, and then
// `gap_us` for each further token. Between `stall_begin_us` and `stall_end_us` it does nothing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "loadtest/load_run.h"
#include "loadtest/request_record.h"

namespace baton {

struct FakeServiceOptions {
  int64_t prefill_us = 10'000;
  int64_t gap_us = 1'000;
  int64_t stall_begin_us = 0;
  int64_t stall_end_us = 0;
  int64_t send_delay_us = 0;  // of the load generator
};

class FakeService {
 public:
  explicit FakeService(const FakeServiceOptions& options) : options_(options) {}

  // Plays the whole run and returns its records in the order of sending.
  std::vector<RequestRecord> Play(LoadRun& run) {
    std::vector<RequestRecord> records;
    while (!run.finished()) {
      const std::optional<int64_t> due_us = run.NextDueUs();
      const bool ends_first =
          !running_.empty() && (!due_us || running_.begin()->first.first <= *due_us);
      if (ends_first) {
        End(run, records);
      } else {
        Begin(*run.TakeDue(*due_us));
      }
    }
    std::sort(records.begin(), records.end(),
              [](const auto& a, const auto& b) { return a.sent_us < b.sent_us; });
    return records;
  }

  // Prompts in the order of sending.
  const std::vector<LoadRequest>& requests() const { return requests_; }
  size_t most_running() const { return most_running_; }

 private:
  // Time after the stall, if `at_us` is in it.
  int64_t AfterStall(int64_t at_us) const {
    const bool stalled = at_us >= options_.stall_begin_us && at_us < options_.stall_end_us;
    return stalled ? options_.stall_end_us : at_us;
  }

  void Begin(DueRequest due) {
    const int64_t sent_us = due.intended_us + options_.send_delay_us;
    AnswerTimer timer(due.request, due.intended_us, sent_us);
    int64_t at_us = AfterStall(std::max(sent_us, free_us_)) + options_.prefill_us;
    AnswerContent answer = {.whole = true,
                            .text = "an answer",
                            .tokens = {},
                            .prompt_tokens = 0,
                            .output_tokens = due.request.output_tokens};
    for (int32_t i = 0; i < due.request.output_tokens; ++i) {
      if (i > 0) at_us += options_.gap_us;
      timer.OnContent(at_us, 1);
      answer.tokens.push_back(1000 + i);
    }
    timer.OnEnd(
        at_us, {.outcome = RequestOutcome::kWhole, .error = {}, .error_message = {}, .ledger = {}});
    free_us_ = at_us;
    requests_.push_back(due.request);
    running_.emplace(std::pair(at_us, due.order),
                     Running{std::move(due.request), timer.TakeRecord(), std::move(answer)});
    most_running_ = std::max(most_running_, running_.size());
  }

  void End(LoadRun& run, std::vector<RequestRecord>& records) {
    const auto first = running_.begin();
    run.OnEnd(first->second.request, first->second.answer, first->second.record.end_us);
    records.push_back(std::move(first->second.record));
    running_.erase(first);
  }

  struct Running {
    LoadRequest request;
    RequestRecord record;
    AnswerContent answer;
  };

  const FakeServiceOptions options_;
  int64_t free_us_ = 0;
  std::map<std::pair<int64_t, int64_t>, Running> running_;  // by end and order
  std::vector<LoadRequest> requests_;
  size_t most_running_ = 0;
};

}  // namespace baton
