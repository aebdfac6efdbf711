#include "cli/job_flags.h"

#include <unistd.h>

#include <cstdio>
#include <limits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/input_file.h"
#include "cli/job_format.h"
#include "cli/job_resume.h"
#include "cli/outcome.h"
#include "common/choices.h"
#include "common/exit_code.h"
#include "common/prompt_chunks.h"
#include "common/request_bounds.h"
#include "common/status_macros.h"

namespace baton {
namespace {

constexpr int32_t kMaxInt = std::numeric_limits<int32_t>::max();
// A double, so that --help shows the limit as it is written here.
constexpr double kLeastRepetitionPenalty = 0.01;
static_assert(static_cast<float>(kLeastRepetitionPenalty) == kMinRepetitionPenalty);

absl::Status AddLogitBias(const std::string& entry, SamplingParams& sampling) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(entry, absl::MaxSplits(':', 1));
  TokenId token = 0;
  float bias = 0;
  if (!absl::SimpleAtoi(parts.first, &token) || token < 0 ||
      !absl::SimpleAtof(parts.second, &bias) ||
      !(bias >= -kMaxLogitBias && bias <= kMaxLogitBias)) {
    return absl::InvalidArgumentError(
        absl::StrCat("is ", entry, "; must be ID:BIAS, as in 42:-5, with an ID of 0 to ", kMaxInt,
                     " and a BIAS of ", -kMaxLogitBias, " to ", kMaxLogitBias));
  }
  if (!sampling.logit_bias.emplace(token, bias).second) {
    return absl::InvalidArgumentError(absl::StrCat("names token ", parts.first, " twice"));
  }
  return absl::OkStatus();
}

absl::StatusOr<AnsweredJobs> ReadResults(const std::string& path) {
  ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path));
  absl::StatusOr<AnsweredJobs> answered = AnsweredJobs::Read(file);
  if (!answered.ok()) {
    return absl::Status(answered.status().code(),
                        absl::StrCat("--resume: ", path, ": ", answered.status().message()));
  }
  RETURN_IF_ERROR(PrepareToAppend(*answered, path, STDOUT_FILENO));
  return answered;
}

template <typename Value>
absl::Status Take(absl::StatusOr<Value> parsed, Value& out) {
  if (parsed.ok()) out = *std::move(parsed);
  return parsed.status();
}

int RunFile(JobRunner& runner, const JobFlags& flags) {
  absl::StatusOr<InputFile> input =
      *flags.jobs == "-" ? InputFile::StandardInput() : InputFile::Open(*flags.jobs);
  if (!input.ok()) return ReportError(input.status());
  if (!flags.resume) return RunJobLines(runner, *input, flags.options, flags.job);
  const absl::StatusOr<AnsweredJobs> answered = ReadResults(*flags.resume);
  if (!answered.ok()) return ReportError(answered.status());
  return RunJobLines(runner, *input, flags.options, flags.job, &*answered);
}

// Adds the flags of a job in parts. They exclude every other form of a job.
void AddPartFlags(CommandLine& line, JobFlags& flags,
                  const std::vector<CommandLine::Option>& others) {
  CommandLine::Option question =
      line.Add("--question", &flags.question,
               "Question that follows the chunks. It is a user's message, as with --chat");
  question.Group("Chunks");
  for (const CommandLine::Option& other : others) question.Excludes(other);
  line.Add("--system", &flags.system, "System message before the chunks")
      .Needs(question)
      .Group("Chunks");
  line.Add("--chunk", &flags.chunks,
           "A chunk of the prompt, such as a document. @FILE reads a file. Other requests reuse "
           "its KV in any order and beside any other chunks")
      .TakesOne()
      .Needs(question)
      .Group("Chunks");
}

// Returns the conversation of --system, --chunk and --question.
absl::StatusOr<std::vector<ChatMessage>> MessagesOfParts(const JobFlags& flags) {
  std::vector<ChatMessage> messages;
  if (flags.system) {
    messages.push_back({.role = "system", .content = *flags.system, .name = std::nullopt});
  }
  ChatMessage question = {.role = "user", .content = *flags.question, .name = std::nullopt};
  ASSIGN_OR_RETURN(question.chunks, ReadChunks(flags.chunks));
  messages.push_back(std::move(question));
  return messages;
}

}  // namespace

absl::StatusOr<std::vector<PromptPart>> ReadChunks(const std::vector<std::string>& chunks) {
  std::vector<PromptPart> parts;
  for (const std::string& chunk : chunks) {
    if (!chunk.starts_with('@')) {
      parts.emplace_back(chunk);
      continue;
    }
    ASSIGN_OR_RETURN(InputFile file, InputFile::Open(chunk.substr(1)));
    ASSIGN_OR_RETURN(parts.emplace_back(), file.ReadAll(kMaxJobLineBytes));
  }
  return parts;
}

void AddChunkOptionFlags(CommandLine& line, Job& job) {
  line.AddParsed(
          "--chunk-positions",
          [&job](const std::string& name) {
            return Take(ParseChunkPositions(name), job.chunk_options.positions);
          },
          "Positions of chunks. overlap: each chunk begins behind the system part. sequential: "
          "each part begins behind the part before it. Default: overlap")
      .OneOf({"overlap", "sequential"})
      .Group("Chunks");
  line.AddParsed(
          "--chunk-scope",
          [&job](const std::string& name) {
            return Take(ParseChunkScope(name), job.chunk_options.scope);
          },
          "What a chunk attends to. system: the system part and itself. alone: only itself. "
          "Default: system")
      .OneOf({"system", "alone"})
      .Group("Chunks");
  line.AddParsed(
          "--chunk-repair",
          [&job](const std::string& name) {
            return Take(ParseChunkRepair(name), job.chunk_options.repair);
          },
          "Tokens of chunks to compute again, with attention to all parts before them. none; "
          "first:K: the first K tokens of each chunk; share:R: the share R of all chunk tokens, 0 "
          "to 1. Default: none")
      .Group("Chunks");
  line.AddParsed(
          "--chunk-separator",
          [&job](const std::string& separator) {
            RETURN_IF_ERROR(CheckChunkSeparator(separator));
            job.chunk_separator = separator;
            return absl::OkStatus();
          },
          "Text that splits a prompt into system part, chunks and question, as in 'S##A##B##Q'. In "
          "a conversation, it splits the first user message that contains it. Empty: off")
      .Group("Chunks");
}

void AddJobFlags(CommandLine& line, JobFlags& flags) {
  CommandLine::Option prompt = line.Add("--prompt", &flags.prompt, "Plain text to continue");
  CommandLine::Option chat =
      line.Add("--chat", &flags.chat,
               "A user's message. The model's chat template makes the prompt from it");
  CommandLine::Option jobs =
      line.Add("--jobs", &flags.jobs,
               "File with one job on each line, in the format below. - reads standard input. "
               "Sampling flags are the defaults of the jobs")
          .Value("FILE");
  prompt.Group("Jobs").Excludes(chat).Excludes(jobs);
  chat.Group("Jobs").Excludes(jobs);
  jobs.Group("Jobs");
  AddPartFlags(line, flags, {prompt, chat, jobs});
  AddChunkOptionFlags(line, flags.job);
  line.Add("--concurrency", &flags.options.concurrency,
           "Largest number of jobs that run at the same time")
      .Range(1, 1024)
      .ShowDefault()
      .Group("Jobs");
  line.Add("--n", &flags.job.n,
           "Number of answers to the prompt. The first answer uses the seed; each further one uses "
           "a seed that is larger by 1")
      .Range(1, kMaxChoices)
      .ShowDefault()
      .Group("Sampling");
  line.Add("--priority", &flags.job.priority,
           "Requests with a higher priority run first and are preempted last")
      .Range(kMinPriority, kMaxPriority)
      .ShowDefault()
      .Group("Jobs");
  CommandLine::Option json =
      line.AddFlag("--json", &flags.options.json, "Print one JSON object for each result");
  json.Group("Jobs");
  line.AddFlag("--no-ledger", &flags.options.no_ledger,
               "Leave out the latency ledger after a text answer")
      .Group("Jobs");
  line.AddFlag("--ordered", &flags.options.ordered,
               "Print results in the order of the jobs. Without it, each result is printed when "
               "its job ends")
      .Needs(jobs)
      .Group("Jobs");
  line.Add("--resume", &flags.resume,
           "File of results that --json wrote. Jobs with an answer in it do not run again; failed "
           "jobs do. Each job needs a different id. To extend the file, append to it: --resume F "
           ">> F")
      .Value("FILE")
      .Needs(jobs)
      .Needs(json)
      .Group("Jobs");
  AddSamplingFlags(line, flags.job.sampling);
  flags.flag_is_given = [&line](const std::string& flag) { return line.IsGiven(flag); };
  // Help texts that are added later appear first.
  line.AddHelpText(JobFormatHelp());
  line.AddHelpText(kChatSamplingHelp);
}

void AddSamplingFlags(CommandLine& line, SamplingParams& s) {
  // `add` is for fields with a default, `add_optional` for fields that may stay absent.
  const auto add = [&line](const char* name, auto* field, auto least, auto most, const char* help) {
    line.Add(name, field, help).Range(least, most).Group("Sampling").ShowDefault();
  };
  const auto add_optional = [&line](const char* name, auto* field, int least, int most,
                                    const char* help) {
    line.Add(name, field, help).Range(least, most).Group("Sampling");
  };
  add_optional("--max-tokens", &s.max_tokens, 1, kMaxInt,
               "Largest number of tokens to generate. Without it, the answer may fill the context");
  add("--min-tokens", &s.min_tokens, 0, kMaxInt,
      "Smallest number of tokens to generate, at most --max-tokens. Until then, end tokens, stop "
      "tokens and stop strings do not end the answer");
  add("--temperature", &s.temperature, 0.0, kMaxTemperature,
      "Randomness of the choice. 0: always the most likely token");
  add("--top-k", &s.top_k, 0, kMaxInt,
      "Choose only among this number of most likely tokens. 0: all");
  add("--top-p", &s.top_p, 0.0, 1.0,
      "Choose only among the most likely tokens that together have this probability. It must be "
      "above 0");
  add("--min-p", &s.min_p, 0.0, 1.0,
      "Choose only among tokens with at least this share of the most likely token's probability");
  add("--repetition-penalty", &s.repetition_penalty, kLeastRepetitionPenalty, kMaxRepetitionPenalty,
      "Values above 1 make tokens of the prompt and the answer less likely");
  add("--presence-penalty", &s.presence_penalty, -kMaxPenalty, kMaxPenalty,
      "Subtracted once from the logit of each generated token");
  add("--frequency-penalty", &s.frequency_penalty, -kMaxPenalty, kMaxPenalty,
      "Subtracted from the logit of each generated token for every time that it was generated");
  line.Add("--seed", &s.seed,
           "Seed of the random choices, 0 to 2^64-1. The same seed gives the same answer. Without "
           "it, the seed is random")
      .Group("Sampling");
  add_optional("--logprobs", &s.logprobs, 0, kMaxTopLogprobs,
               "Report log-probabilities, with this number of alternatives for each token");
  line.AddParsedList(
          "--logit-bias", [&s](const std::string& entry) { return AddLogitBias(entry, s); },
          "ID:BIAS adds BIAS, -100 to 100, to the logit of token ID")
      .Value("ID:BIAS")
      .TakesOne()
      .Group("Sampling");
  line.Add("--stop", &s.stop, "Text that ends the answer").TakesOne().Group("Sampling");
  line.Add("--stop-token-id", &s.stop_token_ids,
           "Token that ends the answer, in addition to the model's end token")
      .TakesOne()
      .Range(0, kMaxInt)
      .Group("Sampling");
  line.AddFlag("--ignore-eos", &s.ignore_eos, "Do not end the answer at the model's end token")
      .Group("Sampling");
}

int RunFlaggedJobs(JobRunner& runner, JobFlags& flags) {
  if (flags.jobs) return RunFile(runner, flags);
  flags.job.id = "cli";
  if (flags.chat || flags.question) {
    if (flags.chat) {
      flags.job.messages = {{.role = "user", .content = *flags.chat, .name = std::nullopt}};
    } else {
      absl::StatusOr<std::vector<ChatMessage>> messages = MessagesOfParts(flags);
      if (!messages.ok()) return ReportError(messages.status());
      flags.job.messages = *std::move(messages);
    }
    // If the runner does not answer, the job itself fails with the reason.
    const absl::StatusOr<SamplingDefaults> model = runner.RecommendedSampling();
    SetChatSampling(model.value_or(SamplingDefaults()), flags.flag_is_given, flags.job.sampling);
  } else if (flags.prompt) {
    flags.job.prompt = flags.prompt;
  } else {
    std::fprintf(stderr, "baton: name a job: --prompt, --chat, --question or --jobs\n");
    return kExitUsage;
  }
  return RunOneJob(runner, flags.job, flags.options);
}

}  // namespace baton
