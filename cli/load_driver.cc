#include "cli/load_driver.h"

#include <sys/prctl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <span>
#include <string>
#include <string_view>

namespace baton {
namespace {

constexpr std::chrono::milliseconds kTick(100);
constexpr int64_t kProgressUs = 500'000;

// Without it, the kernel may wake a waiting thread 50 µs late to save power.
void WakePrecisely() { prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0); }

}  // namespace

double ProcessSeconds() {
  timespec now = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// One request on its way. Its events come one at a time, so only `first_content_us_` is shared with
// the driver's thread.
class LoadDriver::Call final : public AnswerSink {
 public:
  Call(LoadDriver& driver, const DueRequest& due, int64_t sent_us)
      : driver_(driver),
        order_(due.order),
        timer_(due.request, due.intended_us, sent_us),
        keeps_answer_(due.request.conversation >= 0),
        intended_us_(due.intended_us) {}

  void OnContent(std::string_view text, std::span<const TokenId> token_ids,
                 int32_t tokens) override {
    timer_.OnContent(driver_.NowUs(), tokens);
    has_content_.store(true, std::memory_order_relaxed);
    if (!keeps_answer_) return;
    answer_.text += text;
    answer_.tokens.insert(answer_.tokens.end(), token_ids.begin(), token_ids.end());
  }
  void OnLastText(std::string_view text) override {
    if (keeps_answer_) answer_.text += text;
  }
  void OnEnd(AnswerEnd end) override {
    timer_.OnEnd(driver_.NowUs(), std::move(end));
    RequestRecord record = timer_.TakeRecord();
    answer_.whole = record.outcome == RequestOutcome::kWhole;
    answer_.prompt_tokens = record.prompt_tokens;
    answer_.output_tokens = record.output_tokens;
    driver_.OnCallEnd({.order = order_, .answer = std::move(answer_), .record = std::move(record)});
  }

  bool has_content() const { return has_content_.load(std::memory_order_relaxed); }
  int64_t intended_us() const { return intended_us_; }

 private:
  LoadDriver& driver_;
  const int64_t order_;
  AnswerTimer timer_;
  const bool keeps_answer_;  // the next turn needs it
  const int64_t intended_us_;
  AnswerContent answer_;
  std::atomic<bool> has_content_ = false;
};

void LoadDriver::Interrupt() {
  std::lock_guard lock(mutex_);
  interrupted_ = true;
  event_.notify_all();
}

// Notifies under the lock: when the last answer has ended, this object may be destroyed.
void LoadDriver::OnCallEnd(Ended ended) {
  std::lock_guard lock(mutex_);
  ended_.push_back(std::move(ended));
  event_.notify_all();
}

void LoadDriver::SendDue(LoadRun& run) {
  while (std::optional<DueRequest> due = run.TakeDue(NowUs())) {
    auto call = std::make_shared<Call>(*this, *due, NowUs());
    const auto [at, is_new] =
        running_.emplace(due->order, Running{.request = std::move(due->request), .call = call});
    target_.Send(at->second.request, std::move(call));
  }
}

bool LoadDriver::TakeEnded(LoadRun& run, const DriverOptions& options, DriverResult& result) {
  std::vector<Ended> ended;
  bool interrupted = false;
  {
    std::lock_guard lock(mutex_);
    ended.swap(ended_);
    interrupted = interrupted_;
  }
  for (Ended& one : ended) {
    const auto at = running_.find(one.order);
    run.OnEnd(at->second.request, one.answer, one.record.end_us);
    running_.erase(at);
    ++(one.record.outcome == RequestOutcome::kWhole     ? counts_.whole
       : one.record.outcome == RequestOutcome::kRefused ? counts_.refused
                                                        : counts_.failed);
    const bool counts = one.order >= options.warmup;
    if (counts && !IsGood(one.record, options.objectives)) ++counts_.bad;
    records_.emplace_back(one.order, std::move(one.record));
  }
  result.interrupted = interrupted;
  return !interrupted;
}

LoadProgress LoadDriver::ProgressOf(const LoadRun& run, const DriverOptions& options) const {
  LoadProgress progress = counts_;
  const int64_t now_us = NowUs();
  progress.elapsed_s = static_cast<double>(now_us) / 1e6;
  progress.sent = run.sent();
  progress.running = run.running();
  if (!options.objectives.ttft_ms) return progress;
  for (const auto& [order, running] : running_) {
    if (order < options.warmup) continue;
    const double waited_ms = static_cast<double>(now_us - running.call->intended_us()) / 1000;
    if (!running.call->has_content() && waited_ms > *options.objectives.ttft_ms) ++progress.bad;
  }
  return progress;
}

void LoadDriver::WaitForEvent(const LoadRun& run) {
  const std::optional<int64_t> due_us = run.NextDueUs();
  auto wait = std::chrono::duration_cast<std::chrono::microseconds>(kTick);
  if (due_us)
    wait = std::min(wait, std::chrono::microseconds(std::max<int64_t>(0, *due_us - NowUs())));
  std::unique_lock lock(mutex_);
  event_.wait_for(lock, wait, [this] { return !ended_.empty() || interrupted_; });
}

DriverResult LoadDriver::Run(LoadRun& run, const DriverOptions& options) {
  WakePrecisely();
  DriverResult result;
  counts_ = {};
  records_.clear();
  const double cpu_before = ProcessSeconds();
  start_us_ = clock_.NowUs();
  int64_t shown_us = 0;
  bool stopped = false;
  while (true) {
    const bool goes_on = TakeEnded(run, options, result);
    const bool checks_bad = options.max_bad >= 0 && !stopped;
    const bool shows = options.on_progress && NowUs() - shown_us >= kProgressUs;
    if (checks_bad || shows) {
      const LoadProgress progress = ProgressOf(run, options);
      if (shows) options.on_progress(progress);
      if (shows) shown_us = NowUs();
      result.ended_early |= checks_bad && progress.bad > options.max_bad;
    }
    if ((!goes_on || result.ended_early) && !stopped) {
      stopped = true;
      run.StopSending();
      target_.CancelAll();
    }
    SendDue(run);
    if (run.finished()) break;
    WaitForEvent(run);
  }
  result.wall_seconds = static_cast<double>(NowUs()) / 1e6;
  result.cpu_seconds = ProcessSeconds() - cpu_before;
  std::sort(records_.begin(), records_.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  for (auto& [order, record] : records_) result.records.push_back(std::move(record));
  return result;
}

}  // namespace baton
