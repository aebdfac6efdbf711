// Runs jobs, whoever answers them: an engine in this process or a router far away.
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
#include "cli/jobs.h"
#include "common/sampling_defaults.h"

namespace baton {

class JobRunner {
 public:
  virtual ~JobRunner() = default;
  // Blocks until the job has ended. Returns its choices, in order. `on_text` gets the answer as it
  // comes, where the job asks for one alone.
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
  bool no_ledger = false;  // with text: without the latency ledger
};

// Answers one job: text on standard output as it comes, or a result line. Standard error gets what
// cli/answer_notes.h makes of it: why the answer ended, log-probabilities, the ledger. Several
// choices come at the end, each under a line of its own, or a result line each. Returns the exit
// code of the job's status.
int RunOneJob(JobRunner& runner, const Job& job, const RunJobsOptions& options);

// Answers every line of `input`, results in the order in which they end; progress on standard
// error. A line that is not a job is an error line of its own. Returns 0 when every job succeeded,
// else 1, whatever was wrong. No new line is begun once reading fails, which is an error, or once
// results cannot be written any more, which is the caller's to tell (cli/outcome.h).
int RunJobLines(JobRunner& runner, InputFile& input, const RunJobsOptions& options);

}  // namespace baton
