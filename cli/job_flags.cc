#include "cli/job_flags.h"

#include <cstdio>
#include <fstream>
#include <iostream>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/choices.h"
#include "common/exit_code.h"

namespace baton {
namespace {

absl::Status AddLogitBias(const std::string& entry, SamplingParams& sampling) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(entry, absl::MaxSplits(':', 1));
  TokenId token = 0;
  float bias = 0;
  if (!absl::SimpleAtoi(parts.first, &token) || !absl::SimpleAtof(parts.second, &bias)) {
    return absl::InvalidArgumentError(absl::StrCat("is ", entry, ", must be ID:BIAS, as in 42:-5"));
  }
  if (!sampling.logit_bias.emplace(token, bias).second) {
    return absl::InvalidArgumentError(absl::StrCat("names token ", parts.first, " twice"));
  }
  return absl::OkStatus();
}

}  // namespace

void AddJobFlags(CommandLine& line, JobFlags& flags) {
  CommandLine::Option prompt = line.Add("--prompt", &flags.prompt, "Plain text to continue");
  CommandLine::Option chat =
      line.Add("--chat", &flags.chat, "A user's message, put into the model's chat template");
  CommandLine::Option jobs =
      line.Add("--jobs", &flags.jobs, "JSON lines of jobs; - reads standard input");
  prompt.Group("Jobs").Excludes(chat).Excludes(jobs);
  chat.Group("Jobs").Excludes(jobs);
  jobs.Group("Jobs");
  line.Add("--concurrency", &flags.options.concurrency, "Jobs at once")
      .Range(1, 1024)
      .ShowDefault()
      .Group("Jobs");
  line.Add("--n", &flags.job.n, "Answers to the prompt; the next one has the next seed")
      .Range(1, kMaxChoices)
      .ShowDefault()
      .Group("Sampling");
  line.Add("--priority", &flags.job.priority,
           "Of --prompt or --chat: higher goes first and gives way last; -100 to 100")
      .Range(-100, 100)
      .ShowDefault()
      .Group("Jobs");
  line.AddFlag("--json", &flags.options.json, "Print one JSON object a result").Group("Jobs");
  AddSamplingFlags(line, flags.job.sampling);
}

void AddSamplingFlags(CommandLine& line, SamplingParams& s) {
  // A field whose absence means its default, and one that may stay absent.
  const auto add = [&line](const char* name, auto* field, const char* help) {
    line.Add(name, field, help).Group("Sampling").ShowDefault();
  };
  const auto add_optional = [&line](const char* name, auto* field, const char* help) {
    line.Add(name, field, help).Group("Sampling");
  };
  add_optional("--max-tokens", &s.max_tokens,
               "Tokens to generate, from 1; else to the context's end");
  add("--min-tokens", &s.min_tokens, "No token ends the answer before so many; 0 to --max-tokens");
  add("--temperature", &s.temperature, "0 is greedy; 0 to 100");
  add("--top-k", &s.top_k, "Only so many most likely tokens, from 0; 0: all");
  add("--top-p", &s.top_p, "Only the most likely tokens with this share; above 0, to 1");
  add("--min-p", &s.min_p,
      "Only tokens with this share of the likeliest one's probability; 0 to 1");
  add("--repetition-penalty", &s.repetition_penalty,
      "Above 1: discourage known tokens; 0.01 to 100");
  add("--presence-penalty", &s.presence_penalty, "Subtracted once from generated tokens; -2 to 2");
  add("--frequency-penalty", &s.frequency_penalty, "Subtracted for every time generated; -2 to 2");
  add_optional("--seed", &s.seed, "For the same answer again; 0 to 2^64-1");
  add_optional("--logprobs", &s.logprobs, "Report so many alternatives for each token; 0 to 20");
  line.AddParsedList(
          "--logit-bias", [&s](const std::string& entry) { return AddLogitBias(entry, s); },
          "ID:BIAS, added to that token's logit; -100 to 100 (repeatable)")
      .TakesOne()
      .Group("Sampling");
  line.Add("--stop", &s.stop, "Text that ends the answer (repeatable)")
      .TakesOne()
      .Group("Sampling");
  line.Add("--stop-token-id", &s.stop_token_ids,
           "Token that ends the answer, beside the model's own (repeatable)")
      .TakesOne()
      .Group("Sampling");
  line.AddFlag("--ignore-eos", &s.ignore_eos, "Do not end at the model's own end token")
      .Group("Sampling");
}

int RunFlaggedJobs(JobRunner& runner, JobFlags& flags) {
  if (flags.jobs) {
    if (*flags.jobs == "-") return RunJobLines(runner, std::cin, flags.options);
    std::ifstream file(*flags.jobs);
    if (!file) {
      std::fprintf(stderr, "baton: cannot read %s\n", flags.jobs->c_str());
      return kExitUsage;
    }
    return RunJobLines(runner, file, flags.options);
  }
  flags.job.id = "cli";
  if (flags.chat) {
    flags.job.messages = {{.role = "user", .content = *flags.chat, .name = std::nullopt}};
  } else if (flags.prompt) {
    flags.job.prompt = flags.prompt;
  } else {
    std::fprintf(stderr, "baton: name a job: --prompt, --chat or --jobs (see --help)\n");
    return kExitUsage;
  }
  return RunOneJob(runner, flags.job, flags.options);
}

}  // namespace baton
