// `baton bench`: a load test of a service. `baton bench compare`: the differences of two reports.

#include <unistd.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/bench_files.h"
#include "cli/bench_flags.h"
#include "cli/bench_notes.h"
#include "cli/bench_runner.h"
#include "cli/client_commands.h"
#include "cli/commands.h"
#include "cli/connection_client.h"
#include "cli/grpc_target_client.h"
#include "cli/http_target_client.h"
#include "cli/input_file.h"
#include "cli/job_progress.h"
#include "cli/outcome.h"
#include "cli/terminal.h"
#include "common/clock.h"
#include "common/exit_code.h"
#include "common/status_macros.h"
#include "common/termination.h"
#include "loadtest/load_report.h"
#include "loadtest/report_comparison.h"
#include "security/listen_policy.h"

namespace baton {
namespace {

constexpr int64_t kDescribeTimeoutMs = 10'000;
constexpr size_t kMaxReportBytes = size_t{1} << 30;

absl::StatusOr<HttpClientOptions> HttpConnectionOf(const BenchFlags& flags, const BenchPlan& plan) {
  HttpClientOptions out;
  ASSIGN_OR_RETURN(out.api_key, ReadApiKey(flags.connection));
  if (plan.target.is_https) {
    ASSIGN_OR_RETURN(out.tls, TlsContext::Load(flags.connection.tls,
                                               {.side = TlsSide::kClient, .verify_peer = true}));
  } else if (flags.connection.tls.any()) {
    return absl::InvalidArgumentError("--tls-ca, --tls-cert and --tls-key need an https:// target");
  } else if (!out.api_key.empty() && !IsLoopbackHost(plan.target.host_port.host)) {
    return absl::InvalidArgumentError(
        "--api-key-file needs an https:// target: a key must not travel without encryption");
  }
  return out;
}

absl::StatusOr<std::unique_ptr<LoadTarget>> MakeTarget(const BenchFlags& flags,
                                                       const BenchPlan& plan) {
  const HostPort& server = plan.target.host_port;
  if (!plan.target.is_http) {
    ASSIGN_OR_RETURN(ClientConnection connection, OpenConnection(flags.connection));
    return std::make_unique<GrpcTarget>(
        GrpcTargetOptions{.address = JoinHostPort(server.host, server.port),
                          .timeout_ms = flags.timeout_ms,
                          .connections = flags.connections,
                          .as_text = flags.as_text,
                          .ignore_eos = !flags.stop_at_eos,
                          .connection = std::move(connection)});
  }
  ASSIGN_OR_RETURN(HttpClientOptions client, HttpConnectionOf(flags, plan));
  return std::make_unique<HttpTarget>(
      HttpTargetOptions{.address = plan.target,
                        .timeout_ms = flags.timeout_ms,
                        .requests = {.model = flags.model,
                                     .as_text = flags.as_text,
                                     .ignore_eos = !flags.stop_at_eos},
                        .client = std::move(client)});
}

// Asks the target for its model, and fills in what the flags leave to it.
absl::Status TakeModel(LoadTarget& target, const CommandLine& command, BenchPlan& plan) {
  ASSIGN_OR_RETURN(const TargetModel model, target.Describe(kDescribeTimeoutMs));
  plan.settings.insert(plan.settings.begin() + 1, {"model", model.name});
  if (model.vocabulary >= 16 && !command.IsGiven("--vocabulary")) {
    plan.workload.vocabulary = model.vocabulary;
  }
  if (plan.workload.context_length == 0) plan.workload.context_length = model.context_length;
  return absl::OkStatus();
}

// Shows progress in one line of a terminal, and the ends of steps as lines of their own.
BenchRunner::ShowLine ShowOn(ProgressDisplay& display) {
  return [&display](const std::string& text) {
    if (text.ends_with('\n')) {
      display.Clear();
      std::fprintf(stderr, "%s", text.c_str());
    } else {
      display.Show(text);
    }
  };
}

// Ends `runner`'s work on SIGINT and SIGTERM, while this lives.
class InterruptWatch {
 public:
  InterruptWatch(Termination& termination, BenchRunner& runner)
      : termination_(termination), thread_([&termination, &runner] {
          if (termination.Wait() > 0) runner.Interrupt();
        }) {}
  ~InterruptWatch() {
    termination_.Request();
    thread_.join();
  }

 private:
  Termination& termination_;
  std::thread thread_;
};

int ReportResult(const BenchFlags& flags, BenchFiles& files, const LoadResult& result,
                 bool interrupted) {
  const LoadSummary summary = SummaryOf(result);
  const absl::Status written = files.Write(result, summary);
  if (!written.ok()) ReportError(written);
  const bool printed = PrintResult(
      absl::StrCat(LoadTable(result, summary), JsonText(FiguresJson(result, summary)), "\n"));
  if (interrupted) return kExitInterrupted;
  if (!written.ok() || !printed || summary.whole == 0) return kExitFailed;
  const bool valid = summary.invalid_reasons.empty();
  return flags.strict && !valid ? kExitFailed : kExitSuccess;
}

int Bench(const CommandLine& command, const BenchFlags& flags) {
  absl::StatusOr<BenchPlan> plan = PlanBench(command, flags);
  if (!plan.ok()) return ReportError(plan.status());
  PrintNotes(plan->notes);
  std::vector<TracedRequest> trace;
  if (!flags.trace.empty()) {
    absl::StatusOr<std::vector<TracedRequest>> read =
        ReadTraceFile(plan->workload.kind, flags.trace, plan->run.max_requests);
    if (!read.ok()) return ReportError(read.status());
    trace = *std::move(read);
  }
  absl::StatusOr<BenchFiles> files =
      BenchFiles::Create(flags.json_file, flags.html_file, flags.records_file);
  if (!files.ok()) return ReportError(files.status());
  Termination termination;
  const absl::StatusOr<std::unique_ptr<LoadTarget>> made = MakeTarget(flags, *plan);
  if (!made.ok()) return ReportError(made.status());
  LoadTarget& target = **made;
  const absl::Status described = TakeModel(target, command, *plan);
  if (!described.ok()) return ReportError(described);
  const SystemClock clock;
  ProgressDisplay display(stderr, TakesEscapes(STDERR_FILENO));
  BenchRunner runner(flags, *plan, target, clock, ShowOn(display));
  const absl::StatusOr<LoadResult> result = [&] {
    const InterruptWatch watch(termination, runner);
    return runner.Run(trace);
  }();
  display.Clear();
  if (!result.ok()) return ReportError(result.status());
  return ReportResult(flags, *files, *result, runner.interrupted());
}

absl::StatusOr<ReportSamples> ReadReport(const std::string& path) {
  ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path));
  ASSIGN_OR_RETURN(const std::string text, file.ReadAll(kMaxReportBytes));
  absl::StatusOr<ReportSamples> samples = ParseReport(text);
  if (samples.ok()) return samples;
  return absl::Status(samples.status().code(),
                      absl::StrCat(path, ": ", std::string(samples.status().message())));
}

int Compare(const std::string& path_a, const std::string& path_b) {
  const absl::StatusOr<ReportSamples> a = ReadReport(path_a);
  if (!a.ok()) return ReportError(a.status());
  const absl::StatusOr<ReportSamples> b = ReadReport(path_b);
  if (!b.ok()) return ReportError(b.status());
  const std::vector<FigureDifference> differences = CompareReports(*a, *b);
  const bool printed =
      PrintResult(absl::StrCat(ComparisonTable(ComparisonWarnings(*a, *b), differences),
                               JsonText(ComparisonJson(*a, *b, differences)), "\n"));
  return printed ? kExitSuccess : kExitFailed;
}

void AddCompareCommand(CommandLine& bench) {
  CommandLine& command =
      bench.AddCommand("compare", "Show the differences of two reports, with their 95 % intervals");
  auto a = std::make_shared<std::string>();
  auto b = std::make_shared<std::string>();
  command.Add("A", a.get(), "Report that `baton bench --json FILE` wrote").Value("FILE").Required();
  command.Add("B", b.get(), "Report to compare with A").Value("FILE").Required();
  command.OnRun([a, b] { return Compare(*a, *b); });
}

}  // namespace

void AddBenchCommand(CommandLine& line) {
  CommandLine& command =
      line.AddCommand("bench", "Measure a service under load: latencies, goodput, highest rate");
  auto flags = std::make_shared<BenchFlags>();
  command.OnRun([&command, flags] { return Bench(command, *flags); });
  // A command inherits the text that ends its parent's help so far. So these come before the text
  // about loads, which AddBenchFlags adds.
  AddCompareCommand(command);
  AddBenchMockCommand(command);
  AddBenchFlags(command, *flags);
}

}  // namespace baton
