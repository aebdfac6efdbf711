// How far a file of jobs is: a line that is rewritten at a terminal, and totals at the end.
//
// Thread safety: functions are pure; a ProgressDisplay belongs to one thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

namespace baton {

struct JobCounts {
  int64_t answered = 0;
  int64_t failed = 0;
  int64_t skipped = 0;           // --resume: answered before
  int64_t not_begun = 0;         // without a result
  int64_t tokens = 0;            // generated, of answered jobs
  std::optional<int64_t> to_do;  // jobs of this run; absent: the input cannot be read twice
};

// "29/50, 2 failed, 212 tokens/s, 0:07 left".
std::string ProgressText(const JobCounts& counts, std::chrono::milliseconds elapsed);
// "50 jobs: 48 answered, 2 failed; 10812 tokens in 0:51, 212 tokens/s".
std::string TotalsText(const JobCounts& counts, std::chrono::milliseconds elapsed);

// The progress line at the end of a terminal's text.
class ProgressDisplay {
 public:
  // Shows nothing unless `enabled`. `output` must outlive this.
  ProgressDisplay(std::FILE* output, bool enabled) : output_(output), enabled_(enabled) {}
  ~ProgressDisplay() { Clear(); }
  ProgressDisplay(const ProgressDisplay&) = delete;
  ProgressDisplay& operator=(const ProgressDisplay&) = delete;

  bool enabled() const { return enabled_; }
  // Replaces the line.
  void Show(const std::string& text);
  // Removes the line, so that other text can be printed there.
  void Clear();

 private:
  std::FILE* const output_;
  const bool enabled_;
  bool shown_ = false;
};

}  // namespace baton
