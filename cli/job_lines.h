// Hands out the lines of a file of jobs and prints their results.
//
// Every line that Next returns gets exactly one call of Answered, Failed, Skipped or NotBegun.
// Invariant of `ordered`: results are printed in the order of their lines, and Next waits while
// kMostOpenLines lines are between the first one without a result and the newest one.
//
// Thread safety: every function, from any thread. A thread that waits for a line does not stop
// other threads from printing results.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "cli/input_file.h"
#include "cli/job_progress.h"

namespace baton {

inline constexpr size_t kMostOpenLines = 4096;

class JobLines {
 public:
  // `to_do` as in JobCounts. Both pointers must outlive this.
  JobLines(InputFile* input, ProgressDisplay* display, bool ordered, std::optional<int64_t> to_do);

  // Returns the next line that is not blank, with its number. Returns kEnd also if results can no
  // longer be written, and after NotBegun. kEnd and kFailed return no line.
  LineRead Next(std::string& line, int64_t& number);

  // What is printed for a line: `text` and a newline, then `notes` to standard error.
  struct Output {
    std::string text;
    std::string notes = "";
  };
  void Answered(int64_t number, const Output& output, int64_t tokens);
  void Failed(int64_t number, const std::string& text);
  // Records that an earlier run answered the job. Prints nothing.
  void Skipped(int64_t number);
  // Records that the job never began. Prints nothing; Next returns no further line.
  void NotBegun(int64_t number, const absl::Status& why);

  // Rewrites the progress line.
  void ShowProgress();

  // Counts so far. If `to_do` is known, `not_begun` also counts the lines that were not handed out.
  JobCounts counts() const;
  std::chrono::milliseconds elapsed() const;
  // Returns the status of the first NotBegun, or OK.
  absl::Status not_begun_status() const;

 private:
  // REQUIRES for Close, Print and Stopped: the caller holds mutex_. Close ends the line and prints
  // its output, if any.
  void Close(int64_t number, const std::optional<Output>& output);
  void Print(const Output& output);
  bool Stopped() const;

  InputFile* const input_;
  ProgressDisplay* const display_;  // guarded by mutex_
  const bool ordered_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();

  std::mutex input_mutex_;  // taken before mutex_
  int64_t lines_ = 0;       // lines read; guarded by input_mutex_

  mutable std::mutex mutex_;
  std::condition_variable closed_;
  JobCounts counts_;
  bool output_lost_ = false;
  absl::Status not_begun_;
  // With `ordered`: every line that was handed out but is not printed yet.
  struct OpenLine {
    bool closed = false;
    std::optional<Output> output = std::nullopt;
  };
  std::map<int64_t, OpenLine> open_;
};

}  // namespace baton
