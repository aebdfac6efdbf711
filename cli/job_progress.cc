#include "cli/job_progress.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/counted_noun.h"

namespace baton {
namespace {

using std::chrono::milliseconds;

// Returns a duration such as "0:07" or "1:02:03".
std::string HoursMinutesSeconds(int64_t seconds) {
  const int64_t hours = seconds / 3600;
  const int64_t minutes = seconds / 60 % 60;
  if (hours > 0) return absl::StrFormat("%d:%02d:%02d", hours, minutes, seconds % 60);
  return absl::StrFormat("%d:%02d", minutes, seconds % 60);
}

int64_t TokensPerSecond(int64_t tokens, milliseconds elapsed) {
  return tokens * 1000 / std::max<int64_t>(elapsed.count(), 1);
}

std::string Part(int64_t count, const char* what) {
  return count == 0 ? "" : absl::StrCat(", ", count, " ", what);
}

}  // namespace

std::string ProgressText(const JobCounts& counts, milliseconds elapsed) {
  const int64_t done = counts.answered + counts.failed;
  std::string text =
      counts.to_do ? absl::StrCat(done, "/", *counts.to_do) : absl::StrCat(done, " done");
  absl::StrAppend(&text, Part(counts.failed, "failed"), ", ",
                  TokensPerSecond(counts.tokens, elapsed), " tokens/s");
  if (!counts.to_do || done == 0) return text;
  const int64_t left = std::max<int64_t>(*counts.to_do - done, 0);
  const double seconds = static_cast<double>(elapsed.count()) / 1000 / static_cast<double>(done) *
                         static_cast<double>(left);
  absl::StrAppend(&text, ", ", HoursMinutesSeconds(static_cast<int64_t>(std::ceil(seconds))),
                  " left");
  return text;
}

std::string TotalsText(const JobCounts& counts, milliseconds elapsed) {
  const int64_t jobs = counts.answered + counts.failed + counts.skipped + counts.not_begun;
  return absl::StrCat(CountedNoun(jobs, "job"), ": ", counts.answered, " answered",
                      Part(counts.failed, "failed"), Part(counts.skipped, "answered before"),
                      Part(counts.not_begun, counts.to_do ? "not begun" : "or more not begun"),
                      "; ", counts.tokens, " tokens in ",
                      HoursMinutesSeconds(elapsed.count() / 1000), ", ",
                      TokensPerSecond(counts.tokens, elapsed), " tokens/s");
}

void ProgressDisplay::Show(const std::string& text) {
  if (!enabled_) return;
  std::fprintf(output_, "\r%s\033[K", text.c_str());  // also clears the rest of the line
  std::fflush(output_);
  shown_ = true;
}

void ProgressDisplay::Clear() {
  if (!shown_) return;
  std::fputs("\r\033[K", output_);
  std::fflush(output_);
  shown_ = false;
}

}  // namespace baton
