#include "cli/bench_flags.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "cli/bench_notes.h"
#include "cli/input_file.h"
#include "common/status_macros.h"
#include "loadtest/azure_trace.h"
#include "loadtest/mooncake_trace.h"

namespace baton {
namespace {

constexpr double kMaxRate = 1e6;
constexpr int32_t kMaxLength = 1 << 20;
constexpr int64_t kMaxRequests = 100'000'000;
constexpr size_t kMaxTraceLineBytes = 16 << 20;
constexpr int64_t kDefaultRequests = 100;
constexpr int64_t kMaxBenchTimeoutMs = 86'400'000;

constexpr char kBenchHelp[] =
    "Times count from the moment at which a request should have been sent. So a slow answer "
    "cannot\n"
    "hide the wait of the requests behind it. TTFT ends with the first content. ITL is the time\n"
    "between two messages with content. Quantiles are exact, over whole answers.\n"
    "\n"
    "Objectives of --slo, all in milliseconds: ttft_ms, itl_ms (99 % of an answer's gaps), "
    "tpot_ms,\n"
    "e2e_ms. Goodput counts the whole answers that meet all of them.\n"
    "\n"
    "The run is not valid if late_p99_ms exceeds both 2 ms and 5 % of ttft_p50_ms: the load\n"
    "generator was then too slow. The last line of the output is one JSON object with all figures.";

void AddTargetFlags(CommandLine& command, BenchFlags& flags) {
  constexpr char kGroup[] = "Target";
  command
      .Add("--target", &flags.target,
           "Service to measure: grpc://HOST:PORT of a router, or http://HOST:PORT/v1 or "
           "https://HOST:PORT/v1 of an OpenAI-compatible server")
      .Value("URL")
      .Group(kGroup);
  AddConnectionFlags(command, &flags.connection);
  command.Add("--model", &flags.model, "Model name for an HTTP target. Without it, its first model")
      .Value("NAME")
      .Group(kGroup);
  command
      .Add("--timeout-ms", &flags.timeout_ms, "Deadline of each request in milliseconds; 0: none")
      .Group(kGroup)
      .Range(int64_t{0}, kMaxBenchTimeoutMs)
      .ShowDefault();
  command
      .Add("--connections", &flags.connections,
           "Connections to a gRPC target. An HTTP target has one for each running request")
      .Group(kGroup)
      .Range(1, 1024)
      .ShowDefault();
  command
      .AddFlag("--text", &flags.as_text,
               "Send prompts as words instead of token ids. Chats over HTTP are always text")
      .Group(kGroup);
  command
      .AddFlag("--stop-at-eos", &flags.stop_at_eos, "Let answers end before their planned length")
      .Group(kGroup);
  command
      .Add(
          "--context-length", &flags.workload.context_length,
          "Tokens that prompt and answer may have together; what is longer is clipped and counted. "
          "0: as the target tells")
      .Group(kGroup)
      .Range(0, kMaxLength)
      .ShowDefault();
  command
      .Add(
          "--vocabulary", &flags.workload.vocabulary,
          "Size of the vocabulary out of which token ids are drawn, if the target does not tell it")
      .Group(kGroup)
      .Range(16, kMaxLength)
      .ShowDefault();
}

absl::Status CheckArrivals(const BenchFlags& flags, ArrivalKind kind) {
  if (kind == ArrivalKind::kTrace && !HasTrace(flags.workload.kind)) {
    return absl::InvalidArgumentError(
        "--arrivals trace needs a --workload with a trace: mooncake or azure");
  }
  if (kind == ArrivalKind::kClosed && flags.run.concurrency == 0) {
    return absl::InvalidArgumentError("--arrivals closed needs --concurrency of at least 1");
  }
  if (!flags.find_rate) return absl::OkStatus();
  if (kind == ArrivalKind::kClosed) {
    return absl::InvalidArgumentError(
        "--find-rate needs arrivals with a rate, and --arrivals closed has none");
  }
  if (flags.objectives.empty()) {
    return absl::InvalidArgumentError("--find-rate needs --slo");
  }
  if (flags.rate_per_s > flags.max_rate_per_s) {
    return absl::InvalidArgumentError(absl::StrCat("--rate is ", flags.rate_per_s,
                                                   "; must be at most --max-rate, which is ",
                                                   flags.max_rate_per_s));
  }
  return absl::OkStatus();
}

int64_t RequestsOf(const BenchFlags& flags) {
  if (flags.requests > 0) return flags.requests;
  if (flags.find_rate) return kRateStepRequests;
  const bool has_other_end = HasTrace(flags.workload.kind) || flags.duration_s > 0;
  return has_other_end ? 0 : kDefaultRequests;
}

std::vector<std::pair<std::string, std::string>> SettingsOf(const CommandLine& command,
                                                            const BenchFlags& flags,
                                                            const BenchPlan& plan) {
  const WorkloadOptions& workload = plan.workload;
  std::vector<std::pair<std::string, std::string>> out = {
      {"target", flags.target.empty() ? "simulated" : flags.target},
      {"workload", WorkloadNames()[static_cast<size_t>(workload.kind)]},
      {"arrivals", ArrivalNames()[static_cast<size_t>(plan.run.arrivals.kind)]}};
  const auto add = [&out](const char* name, auto value) {
    out.emplace_back(name, absl::StrCat(value));
  };
  if (!HasTrace(workload.kind)) {
    add("prompt-tokens", workload.prompt_tokens);
    add("output-tokens", workload.output_tokens);
    add("length-spread", workload.length_spread);
  }
  const bool has_rate = plan.run.arrivals.kind != ArrivalKind::kClosed &&
                        (plan.run.arrivals.kind != ArrivalKind::kTrace || plan.scales_trace);
  if (has_rate) add("rate", flags.rate_per_s);
  // Everything else that was given.
  for (const auto& [name, value] : std::initializer_list<std::pair<const char*, std::string>>{
           {"burstiness", absl::StrCat(flags.run.arrivals.burstiness)},
           {"requests", absl::StrCat(flags.requests)},
           {"duration-s", absl::StrCat(flags.duration_s)},
           {"concurrency", absl::StrCat(flags.run.concurrency)},
           {"warmup", absl::StrCat(flags.warmup)},
           {"timeout-ms", absl::StrCat(flags.timeout_ms)},
           {"connections", absl::StrCat(flags.connections)},
           {"text", "yes"},
           {"stop-at-eos", "yes"},
           {"context-length", absl::StrCat(workload.context_length)},
           {"vocabulary", absl::StrCat(workload.vocabulary)},
           {"prefixes", absl::StrCat(workload.prefixes)},
           {"prefix-tokens", absl::StrCat(workload.prefix_tokens)},
           {"system-tokens", absl::StrCat(workload.system_tokens)},
           {"turns", absl::StrCat(workload.turns)},
           {"think-s", absl::StrCat(workload.think_s)},
           {"chunk-pool", absl::StrCat(workload.chunk_pool)},
           {"chunks", absl::StrCat(workload.chunks)},
           {"chunk-tokens", absl::StrCat(workload.chunk_tokens)},
           {"trace", flags.trace},
           {"trace-block-tokens", absl::StrCat(workload.trace_block_tokens)},
           {"swing-ratio", absl::StrCat(workload.swing_ratio)},
           {"swing-period-s", absl::StrCat(workload.swing_period_s)},
           {"slo", ObjectivesText(flags.objectives)}}) {
    if (command.IsGiven(absl::StrCat("--", name))) out.emplace_back(name, value);
  }
  return out;
}

}  // namespace

void AddLoadFlags(CommandLine& command, BenchFlags& flags) {
  constexpr char kGroup[] = "Load";
  command
      .AddParsed(
          "--arrivals",
          [&flags](const std::string& name) {
            ASSIGN_OR_RETURN(flags.arrivals, ParseArrivalKind(name));
            return absl::OkStatus();
          },
          "When requests are sent. Default: poisson; of workloads with a trace: trace. With "
          "closed, "
          "each of --concurrency clients sends when its answer has ended")
      .Group(kGroup)
      .OneOf(ArrivalNames());
  command
      .Add("--rate", &flags.rate_per_s,
           "Mean requests per second. With the arrivals of a trace: plays the trace at this mean "
           "rate. With --find-rate: the first rate to try; the search goes down to a hundredth of "
           "it")
      .Group(kGroup)
      .Range(1e-4, kMaxRate)
      .ShowDefault();
  command
      .Add("--burstiness", &flags.run.arrivals.burstiness,
           "Shape of gamma arrivals. 1 is poisson; below 1, requests come in bursts")
      .Group(kGroup)
      .Range(0.01, 100.0)
      .ShowDefault();
  command
      .Add(
          "--requests", &flags.requests,
          "Requests to send. 0: the whole trace, or as many as --duration-s allows, else 100. With "
          "--find-rate: requests of each step, 0: 300")
      .Group(kGroup)
      .Range(int64_t{0}, kMaxRequests)
      .ShowDefault();
  command.Add("--duration-s", &flags.duration_s, "Seconds in which requests are sent; 0: no limit")
      .Group(kGroup)
      .Range(0.0, 86400.0)
      .ShowDefault();
  command
      .Add("--concurrency", &flags.run.concurrency,
           "With closed arrivals: number of clients, at least 1. Otherwise the most requests at "
           "once; a request that waits for this counts as late. 0: no limit")
      .Group(kGroup)
      .Range(0, 100'000)
      .ShowDefault();
  command.Add("--warmup", &flags.warmup, "Requests at the beginning that are sent but not counted")
      .Group(kGroup)
      .Range(int64_t{0}, kMaxRequests)
      .ShowDefault();
  command
      .Add("--seed", &flags.seed,
           "0 to 2^64-1. The same seed gives the same requests at the same times")
      .Group(kGroup)
      .ShowDefault();
}

void AddWorkloadFlags(CommandLine& command, BenchFlags& flags) {
  constexpr char kGroup[] = "Workload";
  WorkloadOptions& workload = flags.workload;
  command
      .AddParsed(
          "--workload",
          [&workload](const std::string& name) {
            ASSIGN_OR_RETURN(workload.kind, ParseWorkloadKind(name));
            return absl::OkStatus();
          },
          "What is sent. Default: synthetic")
      .Group(kGroup)
      .OneOf(WorkloadNames());
  const auto add = [&](const char* name, int32_t* field, int minimum, int maximum,
                       const char* help) {
    command.Add(name, field, help).Group(kGroup).Range(minimum, maximum).ShowDefault();
  };
  add("--prompt-tokens", &workload.prompt_tokens, 1, kMaxLength,
      "Tokens of a synthetic prompt, of the part behind a shared prefix, of a turn of a chat, of a "
      "question about chunks");
  add("--output-tokens", &workload.output_tokens, 1, kMaxLength, "Tokens of an answer");
  command
      .Add("--length-spread", &workload.length_spread,
           "Lengths are uniform from 1 - R to 1 + R times these means")
      .Group(kGroup)
      .Range(0.0, 1.0)
      .ShowDefault();
  add("--prefixes", &workload.prefixes, 1, 1'000'000, "Of shared-prefix: number of prefixes");
  add("--prefix-tokens", &workload.prefix_tokens, 1, kMaxLength,
      "Of shared-prefix: tokens of each prefix");
  add("--system-tokens", &workload.system_tokens, 0, kMaxLength,
      "Of chat and chunks: tokens of the system part, which all prompts share");
  add("--turns", &workload.turns, 1, 10'000, "Of chat: turns of a conversation");
  command
      .Add("--think-s", &workload.think_s,
           "Of chat: mean of the exponential pause between an answer and the next turn, in seconds")
      .Group(kGroup)
      .Range(0.0, 86400.0)
      .ShowDefault();
  add("--chunk-pool", &workload.chunk_pool, 1, 1'000'000, "Of chunks: number of different chunks");
  add("--chunks", &workload.chunks, 1, 500, "Of chunks: chunks of a prompt");
  add("--chunk-tokens", &workload.chunk_tokens, 1, kMaxLength, "Of chunks: tokens of a chunk");
  command
      .Add("--swing-ratio", &workload.swing_ratio,
           "Of swing: how many times as long prompts are as answers, and later answers as prompts. "
           "--prompt-tokens and --output-tokens are the long ones")
      .Group(kGroup)
      .Range(1.0, 1e6)
      .ShowDefault();
  command
      .Add(
          "--swing-period-s", &workload.swing_period_s,
          "Of swing: seconds of a period. The first half has long prompts, the second long answers")
      .Group(kGroup)
      .Range(0.001, 86400.0)
      .ShowDefault();
  command
      .Add("--trace", &flags.trace,
           "File of the workloads mooncake (JSON lines) and azure (CSV); - reads standard input")
      .Value("FILE")
      .Group(kGroup);
  add("--trace-block-tokens", &workload.trace_block_tokens, 1, 4096,
      "Of mooncake: tokens that stand for a block of 512. Prompts shrink by the same factor");
}

void AddReportFlags(CommandLine& command, BenchFlags& flags) {
  constexpr char kGroup[] = "Result";
  command
      .AddParsed(
          "--slo",
          [&flags](const std::string& text) {
            ASSIGN_OR_RETURN(flags.objectives, ParseObjectives(text));
            return absl::OkStatus();
          },
          "Objectives of a good answer, as ttft_ms=200,itl_ms=50")
      .Value("LIST")
      .Group(kGroup);
  command
      .AddFlag("--find-rate", &flags.find_rate,
               "Search the highest rate at which 99 % of requests meet --slo")
      .Group(kGroup);
  command.Add("--max-rate", &flags.max_rate_per_s, "Highest rate that --find-rate tries")
      .Group(kGroup)
      .Range(1e-3, kMaxRate)
      .ShowDefault();
  command.AddFlag("--strict", &flags.strict, "End with exit code 1 if the run is not valid")
      .Group(kGroup);
  command.Add("--json", &flags.json_file, "File for the report as JSON, which `compare` reads")
      .Value("FILE")
      .Group(kGroup);
  command.Add("--html", &flags.html_file, "File for the report as one HTML page")
      .Value("FILE")
      .Group(kGroup);
  command.Add("--records", &flags.records_file, "File for one JSON line about each request")
      .Value("FILE")
      .Group(kGroup);
}

void AddBenchFlags(CommandLine& command, BenchFlags& flags) {
  AddTargetFlags(command, flags);
  AddLoadFlags(command, flags);
  AddWorkloadFlags(command, flags);
  AddReportFlags(command, flags);
  command.AddHelpText(kBenchHelp);
}

absl::StatusOr<BenchPlan> PlanBench(const CommandLine& command, const BenchFlags& flags) {
  BenchPlan plan;
  if (flags.target.empty()) return absl::InvalidArgumentError("--target is required");
  const absl::StatusOr<TargetAddress> target = ParseTargetAddress(flags.target);
  if (!target.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--target: ", std::string(target.status().message())));
  }
  plan.target = *target;
  RETURN_IF_ERROR(PlanLoad(command, flags, plan));
  for (std::string& note : TargetNotes(command, plan.target)) plan.notes.push_back(std::move(note));
  return plan;
}

absl::Status PlanLoad(const CommandLine& command, const BenchFlags& flags, BenchPlan& plan) {
  const bool has_trace = HasTrace(flags.workload.kind);
  if (has_trace && flags.trace.empty()) {
    return absl::InvalidArgumentError("--workload mooncake and azure need --trace");
  }
  if (!has_trace && !flags.trace.empty()) {
    return absl::InvalidArgumentError("--trace is only for --workload mooncake and azure");
  }
  const ArrivalKind kind =
      flags.arrivals.value_or(has_trace ? ArrivalKind::kTrace : ArrivalKind::kPoisson);
  RETURN_IF_ERROR(CheckArrivals(flags, kind));
  plan.workload = flags.workload;
  plan.workload.seed = flags.seed;
  plan.run = flags.run;
  plan.run.arrivals.kind = kind;
  plan.run.arrivals.rate_per_s = flags.rate_per_s;
  plan.run.arrivals.seed = flags.seed;
  plan.run.duration_us = static_cast<int64_t>(flags.duration_s * 1e6);
  plan.run.max_requests = RequestsOf(flags);
  if (plan.run.max_requests > 0) plan.run.max_requests += flags.warmup;
  plan.scales_trace = kind == ArrivalKind::kTrace && (command.IsGiven("--rate") || flags.find_rate);
  plan.settings = SettingsOf(command, flags, plan);
  plan.notes = LoadNotes(
      command, {.arrivals = kind, .workload = flags.workload.kind, .finds_rate = flags.find_rate});
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TracedRequest>> ReadTraceFile(WorkloadKind kind, const std::string& path,
                                                         int64_t max_requests) {
  std::optional<InputFile> file;
  if (path == "-") {
    file = InputFile::StandardInput();
  } else {
    ASSIGN_OR_RETURN(file, InputFile::Open(path));
  }
  const auto fault = [&path](const absl::Status& status) {
    return absl::Status(status.code(),
                        absl::StrCat("trace ", path, ", ", std::string(status.message())));
  };
  std::vector<TracedRequest> out;
  std::string line;
  int64_t number = 0;
  bool needs_header = kind == WorkloadKind::kAzure;
  while (max_requests == 0 || static_cast<int64_t>(out.size()) < max_requests) {
    const LineRead read = file->ReadLine(kMaxTraceLineBytes, line);
    if (read == LineRead::kEnd) break;
    if (read == LineRead::kFailed) return file->status();
    ++number;
    if (read == LineRead::kTooLong) {
      return fault(absl::InvalidArgumentError(
          absl::StrCat("line ", number, ": has more than ", kMaxTraceLineBytes, " bytes")));
    }
    if (needs_header) {
      needs_header = false;
      const absl::Status header = CheckAzureHeader(line);
      if (!header.ok()) return fault(header);
      continue;
    }
    if (line.empty() || line == "\r") continue;
    absl::StatusOr<TracedRequest> request = kind == WorkloadKind::kMooncake
                                                ? ParseMooncakeLine(line, number)
                                                : ParseAzureLine(line, number);
    if (!request.ok()) return fault(request.status());
    out.push_back(*std::move(request));
  }
  if (out.empty())
    return absl::InvalidArgumentError(absl::StrCat("trace ", path, " has no requests"));
  return out;
}

}  // namespace baton
