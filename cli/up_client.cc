// `baton up`: a router, prefill workers and decode workers as processes of this machine, in the
// foreground. Their logs are one, on standard error: each line behind the name of its process.

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
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
#include "absl/strings/str_split.h"
#include "cli/child_process.h"
#include "cli/client_commands.h"
#include "cli/fleet.h"
#include "cli/fleet_memory.h"
#include "cli/fleet_plan.h"
#include "cli/merged_log.h"
#include "cli/outcome.h"
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

constexpr int kPollMs = 50;
constexpr int kCheckMs = 30'000;  // for a program to look at its command line, on a busy machine

struct UpOptions {
  FleetOptions fleet{.router_address = kDefaultRouter};
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

// The supervisor's own lines in the merged log. A line that finds no room is dropped: the fleet
// must not wait for the reader of its log.
class OwnLines {
 public:
  static absl::StatusOr<OwnLines> Open(MergedLog& log) {
    ASSIGN_OR_RETURN(const int writer, log.AddWriter("baton"));
    fcntl(writer, F_SETFL, O_NONBLOCK);
    return OwnLines(writer);
  }
  void Say(const std::string& sentence) const {
    const std::string line = absl::StrCat(sentence, "\n");
    (void)!write(pipe_.get(), line.data(), line.size());  // whole: it is shorter than PIPE_BUF
  }

 private:
  explicit OwnLines(int writer) : pipe_(writer) {}
  FileDescriptor pipe_;
};

// Whether standard error takes a line now. An error that it does not take is lost; the exit code
// stays.
bool StandardErrorHasRoom() {
  pollfd output = {.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
  return poll(&output, 1, 0) > 0;
}

std::string ReadAll(int file) {
  std::string text;
  char buffer[4096];
  for (ssize_t count; (count = pread(file, buffer, sizeof(buffer), text.size())) > 0;) {
    text.append(buffer, static_cast<size_t>(count));
  }
  return text;
}

// What the program makes of its arguments: every setting's value, a line each. InvalidArgument: it
// refuses them.
absl::StatusOr<std::string> AskForSettings(const std::string& what, FleetMember member) {
  member.arguments.emplace_back("--show-settings");
  const FileDescriptor output(memfd_create("baton-settings", MFD_CLOEXEC));
  if (output.get() < 0) return absl::InternalError("cannot make a file in memory");
  ASSIGN_OR_RETURN(ChildProcess program, ChildProcess::Start(member.name, member.arguments,
                                                             output.get(), /*capture=*/false));
  if (!program.WaitForEnd(kCheckMs)) {
    return absl::DeadlineExceededError(absl::StrCat(
        member.arguments.front(), " did not look at its arguments within ", kCheckMs, " ms"));
  }
  std::string text = ReadAll(output.get());
  if (program.exit_code() == kExitSuccess) return text;
  while (text.ends_with('\n')) text.pop_back();
  if (text.empty()) {
    return absl::InternalError(
        absl::StrCat("cannot run ", member.arguments.front(), ": ", *program.Ended()));
  }
  return absl::InvalidArgumentError(absl::StrCat("arguments of ", what, ": ", text));
}

absl::Status CheckArguments(const UpOptions& options, const std::string& directory) {
  std::vector<std::pair<std::string, FleetMember>> kinds = {
      {"the router", PlannedRouter(options.fleet, directory)}};
  for (FleetMember& worker : PlannedWorkers(options.fleet, directory, kDefaultRouter)) {
    const std::string role = worker.name.substr(0, worker.name.find('-'));
    const std::string what = absl::StrCat("the ", role, " workers");
    if (kinds.back().first != what) kinds.emplace_back(what, std::move(worker));
  }
  for (auto& [what, member] : kinds) {
    ASSIGN_OR_RETURN(const std::string settings, AskForSettings(what, member));
    if (!options.verbose) continue;
    for (const auto line : absl::StrSplit(settings, '\n', absl::SkipEmpty())) {
      std::cerr << absl::StrCat("settings of ", what, ": ", line, "\n");
    }
  }
  return absl::OkStatus();
}

// All but the weights, which take a while.
absl::Status CheckModel(const UpOptions& options) {
  const FleetOptions& fleet = options.fleet;
  for (const auto& arguments :
       {fleet.worker_arguments, fleet.prefill_arguments, fleet.decode_arguments}) {
    if (GivesOption(arguments, "--model")) return absl::OkStatus();  // theirs to check
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<GgufFile> file, OpenModel(fleet.model));
  return ReadModelInfo(*file, fleet.model.empty() ? DefaultModelPath() : fleet.model).status();
}

// A port that was chosen freely stays the router's when it is started again.
void KeepPort(FleetOptions& fleet, const std::string& address, const std::string& directory,
              Fleet& processes) {
  const absl::StatusOr<HostPort> listen = ParseHostPort(fleet.router_address);
  const absl::StatusOr<HostPort> got = ParseHostPort(address);
  if (!listen.ok() || !got.ok() || listen->port != 0) return;
  fleet.router_address = JoinHostPort(listen->host, got->port);
  processes.ReplaceRouterArguments(PlannedRouter(fleet, directory).arguments);
}

// Of a fleet that no end of a process leaves whole: one that is not ready, or --exit-on-failure.
absl::Status CheckEnds(bool ready, const Fleet& processes) {
  const std::optional<Fleet::End> end = processes.FirstEnd();
  if (!end) return absl::OkStatus();
  const char* const log = end->exit_code >= 0 ? "; its log above says why" : "";
  const std::string what = absl::StrCat(
      end->name, ready ? " ended" : " ended before all were ready", ": ", end->how, log);
  const bool usage = !ready && end->exit_code == kExitUsage;
  return usage ? absl::InvalidArgumentError(what) : absl::InternalError(what);
}

// Runs until a signal comes (OK) or something goes wrong.
absl::Status Supervise(const UpOptions& options, const std::string& directory, Fleet& processes,
                       const OwnLines& own_lines, Termination& termination) {
  using SteadyClock = std::chrono::steady_clock;
  const auto ready_by = SteadyClock::now() + std::chrono::milliseconds(options.ready_timeout_ms);
  FleetOptions fleet = options.fleet;
  bool has_workers = false;
  bool ready = false;
  RETURN_IF_ERROR(processes.Start(PlannedRouter(fleet, directory)));
  while (termination.Wait(kPollMs) < 0) {
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
        KeepPort(fleet, said.second, directory, processes);
        for (FleetMember& worker : PlannedWorkers(fleet, directory, said.second)) {
          RETURN_IF_ERROR(processes.Start(std::move(worker)));
        }
      }
      if (said.first == "ready" && !ready) {
        ready = true;
        std::cout << *line << std::endl;
      }
    }
    if (!ready && SteadyClock::now() >= ready_by) {
      return absl::DeadlineExceededError(
          absl::StrCat("not ready after ", options.ready_timeout_ms, " ms"));
    }
  }
  return absl::OkStatus();
}

// Tells the workers that would choose the size of their KV pools what each can have.
absl::Status ShareMemoryBetweenWorkers(FleetOptions& options) {
  std::vector<KvCacheAsked> workers;
  std::vector<std::vector<std::string>*> choosing;
  const auto add = [&](int32_t count, std::vector<std::string>& of_role) {
    std::vector<std::string> arguments = options.worker_arguments;
    arguments.insert(arguments.end(), of_role.begin(), of_role.end());
    const KvCacheAsked asked = KvCacheOf(arguments);
    workers.insert(workers.end(), static_cast<size_t>(count), asked);
    if (asked.chooses) choosing.push_back(&of_role);
  };
  add(options.prefill_workers, options.prefill_arguments);
  add(options.decode_workers, options.decode_arguments);
  std::error_code no_file;
  const std::string model = options.model.empty() ? DefaultModelPath() : options.model;
  const uintmax_t bytes = std::filesystem::file_size(model, no_file);
  ASSIGN_OR_RETURN(
      const std::optional<int64_t> mib,
      ShareMemory(workers, no_file ? 0 : static_cast<int64_t>(bytes), AvailableMemoryBytes()));
  for (std::vector<std::string>* arguments : choosing) {
    if (mib) arguments->push_back(absl::StrCat("--kv-cache-mib=", *mib));
  }
  return absl::OkStatus();
}

absl::Status RunFleet(const UpOptions& options, const std::string& directory, MergedLog& log,
                      Termination& termination) {
  ASSIGN_OR_RETURN(const OwnLines own_lines, OwnLines::Open(log));
  Fleet processes(&log);
  const absl::Status status = Supervise(options, directory, processes, own_lines, termination);
  processes.Shutdown();
  return status;
}

int Up(UpOptions options) {
  Termination termination;
  const std::string directory = ProgramDirectory();
  absl::Status status = CheckArguments(options, directory);
  if (status.ok()) status = CheckModel(options);
  if (status.ok()) status = ShareMemoryBetweenWorkers(options.fleet);
  if (!status.ok()) return ReportError(status);
  signal(SIGPIPE, SIG_IGN);  // the fleet outlives the readers of its output
  const absl::StatusOr<std::unique_ptr<MergedLog>> log = MergedLog::Create(STDERR_FILENO);
  if (!log.ok()) return ReportError(log.status());
  status = RunFleet(options, directory, **log, termination);
  (*log)->Finish();  // what the processes said last comes before what is said about them
  if (status.ok()) return kExitSuccess;
  return StandardErrorHasRoom() ? ReportError(status) : ExitCodeOf(status);
}

}  // namespace

void AddUpCommand(CommandLine& line) {
  CommandLine& command = line.AddCommand(
      "up", "Start a router and workers on this machine and keep them in the foreground");
  auto options = std::make_shared<UpOptions>();
  FleetOptions& fleet = options->fleet;
  command.Add("--model", &fleet.model, "GGUF file; else the default model").FromEnvironment();
  command.Add("--prefill-workers", &fleet.prefill_workers, "How many").Range(0, 64).ShowDefault();
  command.Add("--decode-workers", &fleet.decode_workers, "How many").Range(1, 64).ShowDefault();
  command
      .Add("--router-address", &fleet.router_address,
           "HOST:PORT for the router; port 0 picks a free one")
      .IsListenAddress()
      .ShowDefault();
  command
      .Add("--ready-timeout-ms", &options->ready_timeout_ms,
           "Give up when not ready after so long, in milliseconds")
      .Range(int64_t{1}, kMaxTimeoutMs)
      .ShowDefault();
  command.AddFlag("--exit-on-failure", &options->exit_on_failure,
                  "End all when one process ends, in place of starting it again");
  command.AddFlag("--verbose", &options->verbose,
                  "Print every setting, in place of those that are not the default");
  command.Add("--worker-argument", &fleet.worker_arguments,
              "Passed on to every worker, as in --worker-argument=--block-size=32");
  command.Add("--prefill-argument", &fleet.prefill_arguments,
              "Passed on to every prefill worker, behind those for all");
  command.Add("--decode-argument", &fleet.decode_arguments,
              "Passed on to every decode worker, behind those for all");
  command.Add("--router-argument", &fleet.router_arguments, "Passed on to the router");
  command.OnRun([options] { return Up(*options); });
}

}  // namespace baton
