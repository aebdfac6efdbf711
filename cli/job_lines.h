// Hands out the lines of a file of jobs, and prints their results.
//
// Every line that Next returns gets exactly one of Answered, Failed, Skipped and NotBegun.
// Invariant of `ordered`: results are printed in the order of their lines, and Next waits while
// kMostOpenLines lines lie between the first one without a result and the newest one.
//
// Thread safety: every function, from any thread. Results are printed while another thread waits
// for a line.
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

  // The next line that is not blank, with its number. kEnd also once results cannot be written any
  // more, and after NotBegun.
  LineRead Next(std::string& line, int64_t& number);

  // `text` is printed with a newline.
  void Answered(int64_t number, const std::string& text, int64_t tokens);
  void Failed(int64_t number, const std::string& text);
  // The job was answered before; nothing is printed.
  void Skipped(int64_t number);
  // The job never began: nothing is printed, and no further line is handed out.
  void NotBegun(int64_t number, const absl::Status& why);

  // Rewrites the progress line.
  void ShowProgress();

  // So far. `not_begun` also counts the lines that were not handed out, as far as `to_do` tells.
  JobCounts counts() const;
  std::chrono::milliseconds elapsed() const;
  // Of the first NotBegun; OK if there was none.
  absl::Status not_begun_status() const;

 private:
  // These three need mutex_ held. Close prints `text`, where it is not null, and forgets the line.
  void Close(int64_t number, const std::string* text);
  void Print(const std::string& text);
  bool Stopped() const;

  InputFile* const input_;
  ProgressDisplay* const display_;  // guarded by mutex_
  const bool ordered_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();

  std::mutex input_mutex_;  // taken before mutex_
  int64_t lines_ = 0;       // read; guarded by input_mutex_

  mutable std::mutex mutex_;
  std::condition_variable closed_;
  JobCounts counts_;
  bool output_lost_ = false;
  absl::Status not_begun_;
  // With `ordered`: the lines that were handed out and are not printed yet, with their text once it
  // is known.
  std::map<int64_t, std::optional<std::string>> open_;
};

}  // namespace baton
