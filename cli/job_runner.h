// Runs jobs on an engine in this process or through a router.
//
// Thread safety: Run may be called from many threads at once; Interrupt from any.
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

// The error of a job that never began: the command was interrupted first, or no router took it.
// Such a job has no result. Returns `status` with a mark that IsNotBegun sees.
absl::Status NotBegun(absl::Status status);
bool IsNotBegun(const absl::Status& status);
// Without the mark.
absl::Status AsBegun(absl::Status status);

class JobRunner {
 public:
  virtual ~JobRunner() = default;
  // Blocks until the job has ended. Returns its choices, in order. `on_text` gets the answer as it
  // comes, where the job asks for one alone; it may be empty.
  virtual absl::StatusOr<std::vector<JobResult>> Run(
      const Job& job, const std::function<void(std::string_view)>& on_text) = 0;
  // The bytes of each of `tokens`, for people. Unimplemented where the runner does not know them.
  virtual absl::StatusOr<std::vector<std::string>> Pieces(const std::vector<TokenId>& tokens) {
    return absl::UnimplementedError(absl::StrCat("the text of ", tokens.size(), " tokens"));
  }
  // What the model's file recommends for conversations.
  virtual absl::StatusOr<SamplingDefaults> RecommendedSampling() { return SamplingDefaults(); }
  // Ends everything that runs, and whatever comes later, with Cancelled.
  virtual void Interrupt() = 0;
};

// The pieces that an answer's notes show (cli/answer_notes.h); none where `runner` does not tell
// them.
TokenPieces FindPieces(JobRunner& runner, const Job& job, const std::vector<JobResult>& results);

struct RunJobsOptions {
  int concurrency = 1;     // jobs at once
  bool json = false;       // result lines instead of the answer's text
  bool ordered = false;    // prints the results of a file in line order, not in the order of ends
  bool no_ledger = false;  // with text: leaves out the latency ledger
};

// Answers one job: text on standard output as it comes, or a result line. Standard error gets what
// cli/answer_notes.h makes of it: why the answer ended, log-probabilities, the ledger. Several
// choices come at the end, each under a line of its own, or a result line each. Returns the exit
// code of the job's status.
int RunOneJob(JobRunner& runner, const Job& job, const RunJobsOptions& options);

// Answers every line of `input` except those that `answered` has, which may be null. `defaults` is
// as in ParseJob. A line that is not a job has an error as its result. Standard error gets the
// progress, where it is a terminal, and the totals in the end.
//
// Returns 0 when every job succeeded, 2 when `answered` is given and the input cannot be read twice
// or has an id twice, else 1. No new line is begun once reading fails or a job never began; both
// are reported. The same holds once results cannot be written any more (cli/outcome.h).
int RunJobLines(JobRunner& runner, InputFile& input, const RunJobsOptions& options,
                const Job& defaults = {}, const AnsweredJobs* answered = nullptr);

}  // namespace baton
