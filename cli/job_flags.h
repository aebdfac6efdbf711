// Command-line flags that commands share: sampling (`run`, `generate`, `chat`), and the choice and
// output of jobs (`run`, `generate`).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/chat_sampling.h"
#include "cli/job_runner.h"
#include "cli/jobs.h"
#include "common/command_line.h"
#include "common/prompt_chunks.h"

namespace baton {

struct JobFlags {
  std::optional<std::string> prompt;    // with --prompt
  std::optional<std::string> chat;      // with --chat
  std::optional<std::string> jobs;      // with --jobs: a file of JSON lines, "-" for standard input
  std::optional<std::string> question;  // with --question: a job in parts
  std::optional<std::string> system;    // with --question
  std::vector<std::string> chunks;      // with --question: texts, or "@FILE"
  Job job;  // sampling and options of --prompt, --chat and --question; defaults of --jobs
  std::optional<std::string> resume;  // with --resume: a file of results
  RunJobsOptions options;
  FlagIsGiven flag_is_given;  // set by AddJobFlags
};

// Adds a flag for every sampling field. Numbers outside the range of their field are refused here.
// Conflicts with the model or with another flag are refused by the router or engine that answers.
void AddSamplingFlags(CommandLine& line, SamplingParams& sampling);
// Adds these and the flags of jobs. The help of `line` gets the job format.
void AddJobFlags(CommandLine& line, JobFlags& flags);

// Adds the options of chunks, which apply to every form of a job.
void AddChunkOptionFlags(CommandLine& line, Job& job);
// Returns the chunks that --chunk names: texts, or the contents of "@FILE". Errors as
// InputFile::Open.
absl::StatusOr<std::vector<PromptPart>> ReadChunks(const std::vector<std::string>& chunks);

// Runs the jobs that the flags name. Returns the exit code of RunOneJob or RunJobLines, or 2 for a
// command line without a job or with a file that cannot be read.
int RunFlaggedJobs(JobRunner& runner, JobFlags& flags);

}  // namespace baton
