// `baton up`: runs a router and workers of every role as processes of this machine, in the
// foreground. Standard error shows one merged log; each line begins with the name of its
// process.

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <climits>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "cli/client_commands.h"
#include "cli/fleet.h"
#include "cli/fleet_memory.h"
#include "cli/fleet_plan.h"
#include "cli/merged_log.h"
#include "cli/outcome.h"
#include "cli/program_settings.h"
#include "common/clock.h"
#include "common/exit_code.h"
#include "common/file_descriptor.h"
#include "common/host_port.h"
#include "common/status_macros.h"
#include "common/termination.h"
#include "engine/model_loader.h"
#include "kernels/cpu/available_memory.h"
#include "rpc/channel.h"

namespace baton {
namespace {

constexpr int kEndPollMs = 50;

struct UpOptions {
  FleetOptions fleet{.router_address = kDefaultRouter};
  std::optional<int32_t> prefill_workers;
  std::optional<int32_t> decode_workers;
  int64_t ready_timeout_ms = 120'000;
  bool exit_on_failure = false;
  bool verbose = false;
};

std::string ProgramDirectory() {
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path));
  const std::string self(path, length > 0 ? static_cast<size_t>(length) : 0);
  const size_t slash = self.rfind('/');
  return slash == std::string::npos ? "." : self.substr(0, slash);
}

// Writes the supervisor's own lines into the merged log. Drops a line if the pipe has no room,
// because the fleet must not wait for the reader of its log.
class OwnLines {
 public:
  static absl::StatusOr<OwnLines> Open(MergedLog& log) {
    ASSIGN_OR_RETURN(const int writer, log.AddWriter("baton"));
    fcntl(writer, F_SETFL, O_NONBLOCK);
    return OwnLines(writer);
  }
  void Say(const std::string& sentence) const {
    const std::string line = absl::StrCat(sentence, "\n");
    (void)!write(pipe_.get(), line.data(),
                 line.size());  // atomic, because it is shorter than PIPE_BUF
  }

 private:
  explicit OwnLines(int writer) : pipe_(writer) {}
  FileDescriptor pipe_;
};

// Returns true if standard error can take a line now. Otherwise the error message is lost, but the
// exit code stays correct.
bool StandardErrorHasRoom() {
  pollfd output = {.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
  return poll(&output, 1, 0) > 0;
}

bool SignalIsPending() {
  sigset_t pending;
  sigpending(&pending);
  return sigismember(&pending, SIGINT) == 1 || sigismember(&pending, SIGTERM) == 1;
}

// Settings of the workers of each role; absent if the role has no workers.
struct WorkerSettings {
  std::optional<std::string> prefill;
  std::optional<std::string> decode;
  std::optional<std::string> both;

  std::optional<std::string>& Of(const FleetMember& worker) {
    return worker.name.starts_with("prefill") ? prefill
           : worker.name.starts_with("both")  ? both
                                              : decode;
  }
};

// Lets each program check its own arguments. Returns errors as AskForSettings does.
absl::StatusOr<WorkerSettings> CheckArguments(const UpOptions& options,
                                              const std::string& directory) {
  const auto ask = [&](const std::string& what,
                       const FleetMember& member) -> absl::StatusOr<std::string> {
    ASSIGN_OR_RETURN(std::string settings, AskForSettings(what, member, SignalIsPending));
    if (!options.verbose) return settings;
    for (const auto line : absl::StrSplit(settings, '\n', absl::SkipEmpty())) {
      std::cerr << absl::StrCat("settings of ", what, ": ", line, "\n");
    }
    return settings;
  };
  const absl::Status router = ask("the router", PlannedRouter(options.fleet, directory)).status();
  // The user gave this option of the router under its name here.
  RETURN_IF_ERROR(absl::Status(
      router.code(),
      absl::StrReplaceAll(router.message(), {{"--listen ", "--router-address "},
                                             {"--listen: is given 2 times; must be given once",
                                              "--listen is --router-address of `baton up`"}})));
  WorkerSettings settings;
  for (const FleetMember& worker : PlannedWorkers(options.fleet, directory, kDefaultRouter)) {
    std::optional<std::string>& of_role = settings.Of(worker);
    if (of_role) continue;
    const char* const what = &of_role == &settings.prefill  ? "the prefill workers"
                             : &of_role == &settings.decode ? "the decode workers"
                                                            : "the workers with both roles";
    ASSIGN_OR_RETURN(of_role, ask(what, worker));
  }
  return settings;
}

// Checks the model file, except the weights, which would take long. Returns the memory that a
// worker with these settings needs.
absl::StatusOr<WorkerMemory> CheckModel(const std::string& settings) {
  std::string model = SettingValue(settings, "model");
  ASSIGN_OR_RETURN(const std::unique_ptr<GgufFile> file, OpenModel(model));
  if (model.empty()) model = DefaultModelPath();
  RETURN_IF_ERROR(ReadModelInfo(*file, model).status());
  std::error_code no_file;
  const uintmax_t bytes = std::filesystem::file_size(model, no_file);
  return MemoryOf(settings, no_file ? 0 : static_cast<int64_t>(bytes));
}

// Sets the KV pool size of all workers that would otherwise choose it themselves.
absl::Status ShareMemoryBetweenWorkers(const WorkerSettings& settings, FleetOptions& options) {
  std::vector<WorkerMemory> workers;
  std::vector<std::optional<int64_t>*> choosing;
  const auto add = [&](const std::optional<std::string>& of_role, int32_t count,
                       std::optional<int64_t>& kv_cache_mib) -> absl::Status {
    if (!of_role) return absl::OkStatus();
    ASSIGN_OR_RETURN(const WorkerMemory memory, CheckModel(*of_role));
    workers.insert(workers.end(), static_cast<size_t>(count), memory);
    if (memory.chooses) choosing.push_back(&kv_cache_mib);
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(add(settings.prefill, options.prefill_workers, options.prefill_kv_cache_mib));
  RETURN_IF_ERROR(add(settings.decode, options.decode_workers, options.decode_kv_cache_mib));
  RETURN_IF_ERROR(add(settings.both, options.both_workers, options.both_kv_cache_mib));
  ASSIGN_OR_RETURN(const std::optional<int64_t> mib, ShareMemory(workers, AvailableMemoryBytes()));
  for (std::optional<int64_t>* of_role : choosing) *of_role = mib;
  return absl::OkStatus();
}

// Keeps a freely chosen port for later starts of the router. `listen`: a field of `fleet`.
void KeepPort(FleetOptions& fleet, std::string& listen, const std::string& address,
              const std::string& directory, Fleet& processes) {
  const absl::StatusOr<HostPort> wanted = ParseHostPort(listen);
  const absl::StatusOr<HostPort> got = ParseHostPort(address);
  if (!wanted.ok() || !got.ok() || wanted->port != 0) return;
  listen = JoinHostPort(wanted->host, got->port);
  processes.ReplaceRouterArguments(PlannedRouter(fleet, directory).arguments);
}

// Returns an error if a process has ended and the fleet does not restart it. The fleet restarts no
// process before it is ready, and none with --exit-on-failure.
absl::Status CheckEnds(bool ready, const Fleet& processes) {
  const std::optional<Fleet::End> end = processes.FirstEnd();
  if (!end) return absl::OkStatus();
  const char* const log = end->exit_code >= 0 ? "; its log above says why" : "";
  const std::string what = absl::StrCat(
      end->name, ready ? " ended" : " ended before all were ready", ": ", end->how, log);
  const bool usage = !ready && end->exit_code == kExitUsage;
  return usage ? absl::InvalidArgumentError(what) : absl::AbortedError(what);
}

// Runs until a signal comes (returns OK) or an error ends the fleet.
absl::Status Supervise(const UpOptions& options, const std::string& directory, Fleet& processes,
                       const OwnLines& own_lines, Termination& termination) {
  using SteadyClock = std::chrono::steady_clock;
  const auto ready_by = SteadyClock::now() + std::chrono::milliseconds(options.ready_timeout_ms);
  FleetOptions fleet = options.fleet;
  bool has_workers = false;
  bool ready = false;
  bool serves_http = false;
  bool shows_metrics = false;
  std::string metrics;  // the router's line about them, printed after those below
  RETURN_IF_ERROR(processes.Start(PlannedRouter(fleet, directory)));
  while (termination.Wait(kEndPollMs) < 0) {
    if (ready && !options.exit_on_failure) {
      processes.Restart([&](const std::string& sentence) { own_lines.Say(sentence); });
    } else {
      RETURN_IF_ERROR(CheckEnds(ready, processes));
    }
    while (const std::optional<std::string> line = processes.RouterSays()) {
      const std::pair<std::string, std::string> said =
          absl::StrSplit(*line, absl::MaxSplits(' ', 1));
      if (said.first == "listening" && !has_workers) {
        has_workers = true;
        KeepPort(fleet, fleet.router_address, said.second, directory, processes);
        for (FleetMember& worker : PlannedWorkers(fleet, directory, said.second)) {
          RETURN_IF_ERROR(processes.Start(std::move(worker)));
        }
      }
      if (said.first == "ready" && !ready) {
        ready = true;
        std::cout << *line << std::endl;
      }
      if (said.first == "metrics" && metrics.empty()) {
        metrics = *line;
        KeepPort(fleet, fleet.metrics_address, said.second, directory, processes);
      }
      if (said.first == "http" && !serves_http) {
        serves_http = true;
        KeepPort(fleet, fleet.http_address, said.second, directory, processes);
        std::cout << *line << std::endl;
      }
    }
    if (ready && !shows_metrics && !metrics.empty()) {
      shows_metrics = true;
      std::cout << metrics << std::endl;
    }
    if (!ready && SteadyClock::now() >= ready_by) {
      return absl::DeadlineExceededError(absl::StrCat("the service was not ready after ",
                                                      options.ready_timeout_ms,
                                                      " ms (--ready-timeout-ms)"));
    }
  }
  return absl::OkStatus();
}

absl::Status RunFleet(const UpOptions& options, const std::string& directory, MergedLog& log,
                      Termination& termination) {
  ASSIGN_OR_RETURN(const OwnLines own_lines, OwnLines::Open(log));
  const SystemClock clock;
  Fleet processes(&log, &clock);
  const absl::Status status = Supervise(options, directory, processes, own_lines, termination);
  processes.Shutdown();
  return status;
}

// Finds what no single program of the fleet can see.
absl::Status CheckFleetOptions(const FleetOptions& fleet) {
  const std::pair<const char*, const std::string*> addresses[] = {
      {"--router-address", &fleet.router_address},
      {"--http-address", &fleet.http_address},
      {"--metrics-address", &fleet.metrics_address}};
  for (const auto& one : addresses) {
    for (const auto& other : addresses) {
      if (&one >= &other || one.second->empty() || *one.second != *other.second) continue;
      if (const auto where = ParseHostPort(*one.second); where.ok() && where->port == 0) continue;
      return absl::InvalidArgumentError(absl::StrCat(one.first, " and ", other.first, " are both ",
                                                     *one.second, "; each needs a port"));
    }
  }
  std::error_code ignored;
  if (const std::string& folder = fleet.tls_directory;
      !folder.empty() && !std::filesystem::is_directory(folder, ignored)) {
    return absl::NotFoundError(absl::StrCat("--tls-dir: there is no folder ", folder,
                                            "; `baton certs new ", folder, "` makes one"));
  }
  return absl::OkStatus();
}

int Up(UpOptions options) {
  const int32_t usual = options.fleet.both_workers > 0 ? 0 : 1;
  options.fleet.prefill_workers = options.prefill_workers.value_or(usual);
  options.fleet.decode_workers = options.decode_workers.value_or(usual);
  if (options.fleet.decode_workers + options.fleet.both_workers == 0) {
    return ReportError(absl::InvalidArgumentError(
        "no worker generates tokens; --decode-workers or --both-workers must be at least 1"));
  }
  if (const absl::Status status = CheckFleetOptions(options.fleet); !status.ok()) {
    return ReportError(status);
  }
  Termination termination;
  const std::string directory = ProgramDirectory();
  const absl::StatusOr<WorkerSettings> settings = CheckArguments(options, directory);
  if (absl::IsCancelled(settings.status())) return kExitInterrupted;
  if (!settings.ok()) return ReportError(settings.status());
  absl::Status status = ShareMemoryBetweenWorkers(*settings, options.fleet);
  if (!status.ok()) return ReportError(status);
  signal(SIGPIPE, SIG_IGN);  // the fleet outlives the readers of its output
  const absl::StatusOr<std::unique_ptr<MergedLog>> log = MergedLog::Create(STDERR_FILENO);
  if (!log.ok()) return ReportError(log.status());
  status = RunFleet(options, directory, **log, termination);
  (*log)->Finish();  // prints the last lines of the processes before the messages about them
  if (status.ok()) return kExitSuccess;
  return StandardErrorHasRoom() ? ReportError(status) : ExitCodeOf(status);
}

}  // namespace

void AddUpCommand(CommandLine& line) {
  CommandLine& command =
      line.AddCommand("up", "Start a router and workers on this machine, and end them with Ctrl-C");
  auto options = std::make_shared<UpOptions>();
  FleetOptions& fleet = options->fleet;
  // Does not read BATON_MODEL, because the workers read it themselves after their own files.
  command.Add("--model", &fleet.model, "GGUF file. Without it, the workers' own setting decides")
      .Value("FILE");
  command
      .Add("--prefill-workers", &options->prefill_workers,
           "Number of prefill workers. Without it, 1; with --both-workers, 0")
      .Range(0, 64);
  command
      .Add("--decode-workers", &options->decode_workers,
           "Number of decode workers. Without it, 1; with --both-workers, 0")
      .Range(0, 64);
  command
      .Add("--both-workers", &fleet.both_workers,
           "Number of workers with both roles. `baton set-role` changes the role of any worker")
      .Range(0, 64)
      .ShowDefault();
  command
      .Add("--router-address", &fleet.router_address,
           "HOST:PORT for the router. Port 0 means any free port")
      .IsListenAddress()
      .ShowDefault();
  command
      .Add("--http-address", &fleet.http_address,
           "HOST:PORT where the router serves OpenAI's API over HTTP. Port 0 means any free port. "
           "Without it, the router's own setting decides, which is off by default")
      .IsListenAddress();
  command
      .Add("--metrics-address", &fleet.metrics_address,
           "HOST:PORT where the router serves its metrics over HTTP. Port 0 means any free port. "
           "The workers serve their metrics at free ports, which the router's /targets lists. "
           "Without it, the programs' own settings decide, which are off by default")
      .IsListenAddress();
  command
      .Add("--tls-dir", &fleet.tls_directory,
           "Folder that `baton certs new` made. gRPC and HTTP are encrypted with its certificates")
      .Value("FOLDER");
  command
      .Add("--api-keys", &fleet.api_keys,
           "File of API keys for the router. `baton keys new` appends to it")
      .Value("FILE");
  command
      .Add("--ready-timeout-ms", &options->ready_timeout_ms,
           "How long to wait until the service is ready, in milliseconds")
      .Range(int64_t{1}, kMaxTimeoutMs)
      .ShowDefault();
  command.AddFlag("--exit-on-failure", &options->exit_on_failure,
                  "When one process ends, end all processes instead of restarting it");
  command.AddFlag("--verbose", &options->verbose,
                  "Print every setting, not only those that differ from the default");
  command.Add("--worker-argument", &fleet.worker_arguments,
              "Argument for every worker, as in --worker-argument=--block-size=32");
  command.Add("--prefill-argument", &fleet.prefill_arguments,
              "Argument for every prefill worker. It comes after the arguments for all workers");
  command.Add("--decode-argument", &fleet.decode_arguments,
              "Argument for every decode worker. It comes after the arguments for all workers");
  command.Add(
      "--both-argument", &fleet.both_arguments,
      "Argument for every worker with both roles. It comes after the arguments for all workers");
  command.Add("--router-argument", &fleet.router_arguments, "Argument for the router");
  command.PassVariablesOn();
  command.OnRun([options] { return Up(*options); });
}

}  // namespace baton
