// The command-line flags that commands share: how sampled (`run`, `generate`, `chat`), which jobs
// and how printed (`run`, `generate`).
#pragma once

#include <optional>
#include <string>

#include "cli/chat_sampling.h"
#include "cli/job_runner.h"
#include "cli/jobs.h"
#include "common/command_line.h"

namespace baton {

struct JobFlags {
  std::optional<std::string> prompt;  // with --prompt
  std::optional<std::string> chat;    // with --chat
  std::optional<std::string> jobs;    // with --jobs: a file of JSON lines, "-" for standard input
  Job job;                            // sampling of --prompt and --chat; the jobs' defaults
  std::optional<std::string> resume;  // with --resume: a file of results
  RunJobsOptions options;
  FlagIsGiven flag_is_given;  // set by AddJobFlags
};

// How tokens are chosen and where an answer ends; a flag for every field. A number outside its
// field's range is refused here; what the model or another flag makes of it, by whoever answers.
void AddSamplingFlags(CommandLine& line, SamplingParams& sampling);
// Those, and which jobs; the help of `line` gets the job format.
void AddJobFlags(CommandLine& line, JobFlags& flags);

// Runs what the flags name and returns the exit code: as RunOneJob or RunJobLines has it, or 2 for
// a command line without a job or a file that cannot be read.
int RunFlaggedJobs(JobRunner& runner, JobFlags& flags);

}  // namespace baton
