// Runs jobs on an engine in this process or through a router.
//
// Thread safety: Run and Pieces may be called from many threads at once; Interrupt from any.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cli/answer_notes.h"
#include "cli/input_file.h"
#include "cli/job_resume.h"
#include "cli/jobs.h"
#include "common/sampling_defaults.h"

namespace baton {

// Marks the error of a job that never began, because the command was interrupted first or no router
// accepted it. Such a job has no result. IsNotBegun finds the mark.
absl::Status NotBegun(absl::Status status);
bool IsNotBegun(const absl::Status& status);
// Returns `status` without the mark.
absl::Status AsBegun(absl::Status status);

class JobRunner {
 public:
  virtual ~JobRunner() = default;
  // Blocks until the job has ended. Returns its choices, in order. If the job has only one choice,
  // `on_text` gets the answer as it comes. `on_text` may be empty.
  virtual absl::StatusOr<std::vector<JobResult>> Run(
      const Job& job, const std::function<void(std::string_view)>& on_text) = 0;
  // Returns the bytes of each of `tokens`. Unimplemented if the runner does not know them.
  virtual absl::StatusOr<std::vector<std::string>> Pieces(const std::vector<TokenId>& tokens) {
    return absl::UnimplementedError(absl::StrCat("the text of ", tokens.size(), " tokens"));
  }
  // Returns the sampling that the model's file recommends for conversations.
  virtual absl::StatusOr<SamplingDefaults> RecommendedSampling() { return SamplingDefaults(); }
  // Ends all running and later jobs with Cancelled.
  virtual void Interrupt() = 0;
};

// Returns the pieces of `tokens`. Empty if `runner` does not know them.
TokenPieces FindPieces(JobRunner& runner, const std::vector<TokenId>& tokens);

struct RunJobsOptions {
  int concurrency = 1;     // jobs at once
  bool json = false;       // result lines instead of the answer's text
  bool ordered = false;    // prints the results of a file in line order, not in the order of ends
  bool no_ledger = false;  // with text: leaves out the latency ledger
};

// Answers one job and returns the exit code of its status. Standard output gets the text as it
// comes, or a result line. Standard error gets the notes of cli/answer_notes.h: why the answer
// ended, log-probabilities, the ledger. Several choices are printed at the end, each after a title
// line or as a result line.
int RunOneJob(JobRunner& runner, const Job& job, const RunJobsOptions& options);

// Answers every line of `input` except those that `answered` has. `answered` may be null.
// `defaults` is as in ParseJob. A line that is not a job gets an error as its result. Standard
// error gets the progress, if it is a terminal, and the totals at the end.
//
// Returns:
//  - 0 if every job succeeded
//  - 2 if `answered` is given and the input cannot be read twice or has an id twice
//  - 1 otherwise
//
// Starts no new line after a read failure or after a job that never began, and reports both. Also
// starts none if results can no longer be written (cli/outcome.h).
int RunJobLines(JobRunner& runner, InputFile& input, const RunJobsOptions& options,
                const Job& defaults = {}, const AnsweredJobs* answered = nullptr);

}  // namespace baton
