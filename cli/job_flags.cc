#include "cli/job_flags.h"

#include <cstdio>
#include <fstream>
#include <iostream>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "common/choices.h"
#include "common/exit_code.h"

namespace baton {
namespace {

// An option for a field whose absence means its default.
template <typename T>
void AddSampling(CLI::App& app, const char* name, T* field, const char* help) {
  app.add_option(name, *field, help)->group("Sampling")->capture_default_str();
}
template <typename T>
void AddOptionalSampling(CLI::App& app, const char* name, std::optional<T>* field,
                         const char* help) {
  app.add_option_function<T>(
         name, [field](const T& value) { *field = value; }, help)
      ->group("Sampling");
}

// CLI11 would take -1 for 2^64-1.
uint64_t ParseSeed(const std::string& text) {
  uint64_t seed = 0;
  const bool digits = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  if (!digits || !absl::SimpleAtoi(text, &seed)) {
    throw CLI::ValidationError("--seed", "is " + text + ", must be 0 to 2^64-1");
  }
  return seed;
}

void AddLogitBias(const std::string& entry, SamplingParams& sampling) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(entry, absl::MaxSplits(':', 1));
  TokenId token = 0;
  float bias = 0;
  if (!absl::SimpleAtoi(parts.first, &token) || !absl::SimpleAtof(parts.second, &bias)) {
    throw CLI::ValidationError("--logit-bias", "is " + entry + ", must be ID:BIAS, as in 42:-5");
  }
  if (!sampling.logit_bias.emplace(token, bias).second) {
    throw CLI::ValidationError("--logit-bias", "names token " + parts.first + " twice");
  }
}

}  // namespace

void AddJobFlags(CLI::App& app, JobFlags& flags) {
  flags.prompt_option =
      app.add_option("--prompt", flags.prompt, "Plain text to continue")->group("Jobs");
  flags.chat_option =
      app.add_option("--chat", flags.chat, "A user's message, put into the model's chat template")
          ->group("Jobs");
  flags.jobs_option =
      app.add_option("--jobs", flags.jobs, "JSON lines of jobs; - reads standard input")
          ->group("Jobs");
  flags.prompt_option->excludes(flags.chat_option)->excludes(flags.jobs_option);
  flags.chat_option->excludes(flags.jobs_option);
  app.add_option("--concurrency", flags.options.concurrency, "Jobs at once")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str()
      ->group("Jobs");
  app.add_option("--n", flags.job.n, "Answers to the prompt; the next one has the next seed")
      ->check(CLI::Range(1, kMaxChoices))
      ->capture_default_str()
      ->group("Sampling");
  app.add_flag("--json", flags.options.json, "Print one JSON object a result")->group("Jobs");
  AddSamplingFlags(app, flags.job.sampling);
}

void AddSamplingFlags(CLI::App& app, SamplingParams& s) {
  AddOptionalSampling(app, "--max-tokens", &s.max_tokens,
                      "Tokens to generate, from 1; else to the context's end");
  AddSampling(app, "--min-tokens", &s.min_tokens,
              "No token ends the answer before so many; 0 to --max-tokens");
  AddSampling(app, "--temperature", &s.temperature, "0 is greedy; 0 to 100");
  AddSampling(app, "--top-k", &s.top_k, "Only so many most likely tokens, from 0; 0: all");
  AddSampling(app, "--top-p", &s.top_p,
              "Only the most likely tokens with this share; above 0, to 1");
  AddSampling(app, "--min-p", &s.min_p,
              "Only tokens with this share of the likeliest one's probability; 0 to 1");
  AddSampling(app, "--repetition-penalty", &s.repetition_penalty,
              "Above 1: discourage known tokens; 0.01 to 100");
  AddSampling(app, "--presence-penalty", &s.presence_penalty,
              "Subtracted once from generated tokens; -2 to 2");
  AddSampling(app, "--frequency-penalty", &s.frequency_penalty,
              "Subtracted for every time generated; -2 to 2");
  app.add_option_function<std::string>(
         "--seed", [&s](const std::string& text) { s.seed = ParseSeed(text); },
         "For the same answer again; 0 to 2^64-1")
      ->group("Sampling");
  AddOptionalSampling(app, "--logprobs", &s.logprobs,
                      "Report so many alternatives for each token; 0 to 20");
  app.add_option_function<std::vector<std::string>>(
         "--logit-bias",
         [&s](const std::vector<std::string>& entries) {
           for (const std::string& entry : entries) AddLogitBias(entry, s);
         },
         "ID:BIAS, added to that token's logit; -100 to 100 (repeatable)")
      ->allow_extra_args(false)
      ->group("Sampling");
  app.add_option("--stop", s.stop, "Text that ends the answer (repeatable)")
      ->allow_extra_args(false)
      ->group("Sampling");
  app.add_option("--stop-token-id", s.stop_token_ids,
                 "Token that ends the answer, beside the model's own (repeatable)")
      ->allow_extra_args(false)
      ->group("Sampling");
  app.add_flag("--ignore-eos", s.ignore_eos, "Do not end at the model's own end token")
      ->group("Sampling");
}

int RunFlaggedJobs(JobRunner& runner, JobFlags& flags) {
  if (flags.jobs_option->count() > 0) {
    if (flags.jobs == "-") return RunJobLines(runner, std::cin, flags.options);
    std::ifstream file(flags.jobs);
    if (!file) {
      std::fprintf(stderr, "baton: cannot read %s\n", flags.jobs.c_str());
      return kExitUsage;
    }
    return RunJobLines(runner, file, flags.options);
  }
  flags.job.id = "cli";
  if (flags.chat_option->count() > 0) {
    flags.job.messages = {{.role = "user", .content = flags.chat, .name = std::nullopt}};
  } else if (flags.prompt_option->count() > 0) {
    flags.job.prompt = flags.prompt;
  } else {
    std::fprintf(stderr, "baton: name a job: --prompt, --chat or --jobs (see --help)\n");
    return kExitUsage;
  }
  return RunOneJob(runner, flags.job, flags.options);
}

}  // namespace baton
