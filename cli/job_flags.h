// The command-line flags that commands share: how sampled (`run`, `generate`, `chat`), which jobs
// and how printed (`run`, `generate`).
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "cli/job_runner.h"
#include "cli/jobs.h"

namespace baton {

struct JobFlags {
  std::string prompt;  // with --prompt
  std::string chat;    // with --chat
  std::string jobs;    // with --jobs: a file of JSON lines, "-" for standard input
  Job job;             // sampling of --prompt and --chat
  RunJobsOptions options;
  CLI::Option* prompt_option = nullptr;
  CLI::Option* chat_option = nullptr;
  CLI::Option* jobs_option = nullptr;
};

// How tokens are chosen and where an answer ends; a flag for every field. What is wrong with a
// value is said by whoever answers, except where the text is no value at all.
void AddSamplingFlags(CLI::App& app, SamplingParams& sampling);
// Those, and which jobs.
void AddJobFlags(CLI::App& app, JobFlags& flags);

// Runs what the flags name and returns the exit code: as RunOneJob or RunJobLines has it, or 2 for
// a command line without a job or a file that cannot be read.
int RunFlaggedJobs(JobRunner& runner, JobFlags& flags);

}  // namespace baton
