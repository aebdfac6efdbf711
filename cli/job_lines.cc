#include "cli/job_lines.h"

#include <algorithm>
#include <cstdio>

#include "cli/jobs.h"
#include "cli/outcome.h"

namespace baton {

JobLines::JobLines(InputFile* input, ProgressDisplay* display, bool ordered,
                   std::optional<int64_t> to_do)
    : input_(input), display_(display), ordered_(ordered) {
  counts_.to_do = to_do;
}

LineRead JobLines::Next(std::string& line, int64_t& number) {
  std::lock_guard input_lock(input_mutex_);
  {
    std::unique_lock lock(mutex_);
    closed_.wait(lock, [this] { return open_.size() < kMostOpenLines || Stopped(); });
  }
  while (true) {
    {
      std::lock_guard lock(mutex_);
      if (Stopped()) return LineRead::kEnd;
    }
    const LineRead read = input_->ReadLine(kMaxJobLineBytes, line);
    if (read == LineRead::kEnd || read == LineRead::kFailed) return read;
    number = ++lines_;
    const bool blank = line.find_first_not_of(" \t\r") == std::string::npos;
    if (read == LineRead::kLine && blank) continue;
    if (ordered_) {
      std::lock_guard lock(mutex_);
      open_.emplace(number, OpenLine());
    }
    return read;
  }
}

void JobLines::Answered(int64_t number, const Output& output, int64_t tokens) {
  std::lock_guard lock(mutex_);
  ++counts_.answered;
  counts_.tokens += tokens;
  Close(number, output);
}

void JobLines::Failed(int64_t number, const std::string& text) {
  std::lock_guard lock(mutex_);
  ++counts_.failed;
  Close(number, Output{.text = text});
}

void JobLines::Skipped(int64_t number) {
  std::lock_guard lock(mutex_);
  ++counts_.skipped;
  Close(number, std::nullopt);
}

void JobLines::NotBegun(int64_t number, const absl::Status& why) {
  std::lock_guard lock(mutex_);
  ++counts_.not_begun;
  not_begun_.Update(why);
  Close(number, std::nullopt);
}

void JobLines::ShowProgress() {
  std::lock_guard lock(mutex_);
  display_->Show(ProgressText(counts_, elapsed()));
}

JobCounts JobLines::counts() const {
  std::lock_guard lock(mutex_);
  JobCounts counts = counts_;
  if (counts.to_do && Stopped()) {
    counts.not_begun = std::max(*counts.to_do - counts.answered - counts.failed, counts.not_begun);
  }
  return counts;
}

std::chrono::milliseconds JobLines::elapsed() const {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() -
                                                               begin_);
}

absl::Status JobLines::not_begun_status() const {
  std::lock_guard lock(mutex_);
  return not_begun_;
}

bool JobLines::Stopped() const { return output_lost_ || !not_begun_.ok(); }

void JobLines::Close(int64_t number, const std::optional<Output>& output) {
  if (!ordered_) {
    if (output) Print(*output);
  } else {
    open_[number] = {.closed = true, .output = output};
    while (!open_.empty() && open_.begin()->second.closed) {
      if (open_.begin()->second.output) Print(*open_.begin()->second.output);
      open_.erase(open_.begin());
    }
  }
  closed_.notify_all();
}

void JobLines::Print(const Output& output) {
  display_->Clear();
  if (!PrintResult(output.text + "\n")) output_lost_ = true;
  std::fputs(output.notes.c_str(), stderr);
  display_->Show(ProgressText(counts_, elapsed()));
}

}  // namespace baton
