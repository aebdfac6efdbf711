// `baton up`: a router, prefill workers and decode workers as processes of this machine, in the
// foreground. Their logs are one, on standard error: each line behind the name of its process.

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/child_process.h"
#include "cli/client_commands.h"
#include "cli/fleet_memory.h"
#include "cli/merged_log.h"
#include "cli/outcome.h"
#include "common/exit_code.h"
#include "common/status_macros.h"
#include "common/termination.h"
#include "engine/model_loader.h"
#include "kernels/cpu/available_memory.h"
#include "rpc/channel.h"

namespace baton {
namespace {

constexpr int kPollMs = 50;
constexpr int kRouterEndMs = 20'000;  // it drains for a while
constexpr int kWorkerEndMs = 20'000;

// Where both kinds share the processors, decode steps that come as soon as they can are many small
// ones, each of which reads all weights. A decode worker that gets a fifth of the time beside a
// busy prefill worker has more sequences in each step, and both together answer a quarter more.
constexpr int kDecodeNiceBesidePrefill = 6;

struct UpOptions {
  std::string model;
  int32_t prefill_workers = 1;
  int32_t decode_workers = 1;
  std::string router_address = kDefaultRouter;
  int64_t ready_timeout_ms = 120'000;
  std::vector<std::string> worker_arguments;
  std::vector<std::string> prefill_arguments;
  std::vector<std::string> decode_arguments;
  std::vector<std::string> router_arguments;
};

std::string ProgramDirectory() {
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path));
  const std::string self(path, length > 0 ? static_cast<size_t>(length) : 0);
  const size_t slash = self.rfind('/');
  return slash == std::string::npos ? "." : self.substr(0, slash);
}

// The processes of one `baton up`, in the order in which they were started: the router first.
class Cluster {
 public:
  // `log` must outlive this.
  Cluster(const UpOptions& options, MergedLog* log)
      : options_(options), directory_(ProgramDirectory()), log_(log) {}

  absl::Status StartRouter() {
    std::vector<std::string> arguments = {absl::StrCat(directory_, "/baton-router"),
                                          "--listen",
                                          options_.router_address,
                                          "--min-prefill-workers",
                                          absl::StrCat(options_.prefill_workers),
                                          "--min-decode-workers",
                                          absl::StrCat(options_.decode_workers)};
    arguments.insert(arguments.end(), options_.router_arguments.begin(),
                     options_.router_arguments.end());
    return Start("router", arguments, /*capture=*/true);
  }

  absl::Status StartWorkers(const std::string& router) {
    for (int32_t i = 0; i < options_.prefill_workers; ++i) {
      RETURN_IF_ERROR(StartWorker("prefill", i, router));
    }
    for (int32_t i = 0; i < options_.decode_workers; ++i) {
      RETURN_IF_ERROR(StartWorker("decode", i, router));
    }
    return absl::OkStatus();
  }

  // The router's next line of output, split at its space.
  std::optional<std::pair<std::string, std::string>> RouterSays() {
    const std::optional<std::string> line = children_.front()->ReadLine();
    if (!line) return std::nullopt;
    const size_t space = line->find(' ');
    if (space == std::string::npos) return std::pair(*line, std::string());
    return std::pair(line->substr(0, space), line->substr(space + 1));
  }

  // Names the first process that has ended, and how. InvalidArgument where it says that what it was
  // given is wrong, which it finds before it is `ready`.
  absl::Status CheckAlive(bool ready) {
    for (const auto& child : children_) {
      const std::optional<std::string> how = child->Ended();
      if (!how) continue;
      if (child->exit_code() >= 0) said_why_ = child->name();
      const std::string what = absl::StrCat(child->name(), " ended unexpectedly: ", *how);
      const bool usage = !ready && child->exit_code() == kExitUsage;
      return usage ? absl::InvalidArgumentError(what) : absl::InternalError(what);
    }
    return absl::OkStatus();
  }

  // The process that CheckAlive named, where the last line of its log says why; else empty.
  const std::string& said_why() const { return said_why_; }

  // The router first, so that no request loses its workers.
  void End() {
    if (children_.empty()) return;
    children_.front()->Signal(SIGTERM);
    children_.front()->WaitForEnd(kRouterEndMs);
    for (const auto& child : children_) child->Signal(SIGTERM);
    for (const auto& child : children_) child->WaitForEnd(kWorkerEndMs);
    children_.clear();  // kills what is left
  }

 private:
  absl::Status StartWorker(const std::string& role, int32_t index, const std::string& router) {
    const std::string name = absl::StrCat(role, "-", index);
    std::vector<std::string> arguments = {absl::StrCat(directory_, "/baton-", role, "-worker"),
                                          "--listen",
                                          "127.0.0.1:0",
                                          "--worker-id",
                                          name,
                                          "--router",
                                          router};
    if (!options_.model.empty()) {
      arguments.emplace_back("--model");
      arguments.push_back(options_.model);
    }
    const std::vector<std::string>& of_role =
        role == "prefill" ? options_.prefill_arguments : options_.decode_arguments;
    for (const std::vector<std::string>* more : {&options_.worker_arguments, &of_role}) {
      arguments.insert(arguments.end(), more->begin(), more->end());
    }
    if (role == "decode" && options_.prefill_workers > 0 && !AsksForNice(arguments)) {
      arguments.push_back(absl::StrCat("--nice=", kDecodeNiceBesidePrefill));
    }
    return Start(name, arguments, /*capture=*/false);
  }

  static bool AsksForNice(const std::vector<std::string>& arguments) {
    return std::any_of(arguments.begin(), arguments.end(),
                       [](const std::string& argument) { return argument.starts_with("--nice"); });
  }

  absl::Status Start(const std::string& name, const std::vector<std::string>& arguments,
                     bool capture) {
    ASSIGN_OR_RETURN(const int writer, log_->AddWriter(name));
    absl::StatusOr<ChildProcess> child = ChildProcess::Start(name, arguments, writer, capture);
    close(writer);  // the child has its own
    RETURN_IF_ERROR(child.status());
    children_.push_back(std::make_unique<ChildProcess>(*std::move(child)));
    return absl::OkStatus();
  }

  const UpOptions& options_;
  const std::string directory_;
  MergedLog* const log_;
  std::vector<std::unique_ptr<ChildProcess>> children_;
  std::string said_why_;
};

// Runs until a signal comes (OK) or something goes wrong.
absl::Status Supervise(const UpOptions& options, Cluster& cluster, Termination& termination) {
  using SteadyClock = std::chrono::steady_clock;
  const auto ready_by = SteadyClock::now() + std::chrono::milliseconds(options.ready_timeout_ms);
  bool ready = false;
  RETURN_IF_ERROR(cluster.StartRouter());
  while (termination.Wait(kPollMs) < 0) {
    RETURN_IF_ERROR(cluster.CheckAlive(ready));
    if (const auto said = cluster.RouterSays()) {
      if (said->first == "listening") RETURN_IF_ERROR(cluster.StartWorkers(said->second));
      if (said->first == "ready") {
        ready = true;
        std::cout << "ready " << said->second << std::endl;
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
absl::Status ShareMemoryBetweenWorkers(UpOptions& options) {
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

int Up(UpOptions options) {
  if (const absl::Status fits = ShareMemoryBetweenWorkers(options); !fits.ok()) {
    return ReportError(fits);
  }
  Termination termination;
  const absl::StatusOr<std::unique_ptr<MergedLog>> log = MergedLog::Create(STDERR_FILENO);
  if (!log.ok()) return ReportError(log.status());
  Cluster cluster(options, log->get());
  const absl::Status status = Supervise(options, cluster, termination);
  cluster.End();
  (*log)->Finish();  // what the children said last comes before what is said about them
  if (status.ok()) return kExitSuccess;
  const std::string why = (*log)->LastLine(cluster.said_why());
  if (why.empty()) return ReportError(status);
  return ReportError({status.code(), absl::StrCat(status.message(), ": ", why)});
}

}  // namespace

void AddUpCommand(CommandLine& line) {
  CommandLine& command = line.AddCommand(
      "up", "Start a router and workers on this machine and keep them in the foreground");
  auto options = std::make_shared<UpOptions>();
  command.Add("--model", &options->model, "GGUF file; else the default model");
  command.Add("--prefill-workers", &options->prefill_workers, "How many")
      .Range(0, 64)
      .ShowDefault();
  command.Add("--decode-workers", &options->decode_workers, "How many").Range(1, 64).ShowDefault();
  command
      .Add("--router-address", &options->router_address,
           "HOST:PORT for the router; port 0 picks a free one")
      .ShowDefault();
  command
      .Add("--ready-timeout-ms", &options->ready_timeout_ms,
           "Give up when not ready after so long, in milliseconds")
      .Range(int64_t{1}, kMaxTimeoutMs)
      .ShowDefault();
  command.Add("--worker-argument", &options->worker_arguments,
              "Passed on to every worker, as in --worker-argument=--block-size=32");
  command.Add("--prefill-argument", &options->prefill_arguments,
              "Passed on to every prefill worker, behind those for all");
  command.Add("--decode-argument", &options->decode_arguments,
              "Passed on to every decode worker, behind those for all");
  command.Add("--router-argument", &options->router_arguments, "Passed on to the router");
  command.OnRun([options] { return Up(*options); });
}

}  // namespace baton
