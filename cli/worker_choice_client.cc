#include "cli/worker_choice_client.h"

#include <algorithm>
#include <cstdio>
#include <iostream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/connection_client.h"
#include "cli/outcome.h"
#include "cli/router_client.h"
#include "common/exit_code.h"
#include "common/host_port.h"
#include "common/nearest_name.h"
#include "common/printable_text.h"
#include "common/status_macros.h"
#include "rpc/channel.h"

namespace baton {
namespace {

constexpr int64_t kLookupTimeoutMs = 5000;
constexpr char kShowsWorkers[] = "`baton status` shows the workers and their addresses";
constexpr CalledProcess kWorker = {.kind = "worker",
                                   .option = "--worker",
                                   .missing_advice = kShowsWorkers,
                                   .address_advice = kShowsWorkers};

absl::StatusOr<std::vector<NamedWorker>> Choose(const WorkerChoice& choice,
                                                const ClientConnection& connection) {
  if (!choice.all && CheckHostPort(choice.worker).ok()) {
    return std::vector<NamedWorker>{{.name = choice.worker, .address = choice.worker}};
  }
  if (absl::StrContains(choice.worker, "://")) {
    return absl::InvalidArgumentError(
        absl::StrCat("--worker: ", CheckHostPort(choice.worker).message()));
  }
  RouterClient client({.router = choice.router, .connection = connection});
  ASSIGN_OR_RETURN(const v1::GetStatusResponse status, client.GetStatus(kLookupTimeoutMs));
  return FindWorkers(choice, status);
}

// Returns the name with one line after it, or with several lines below it.
std::string WithName(const NamedWorker& worker, const std::string& text) {
  const bool one_line = std::count(text.begin(), text.end(), '\n') <= 1;
  return one_line ? absl::StrCat(Printable(worker.name), ": ", text)
                  : absl::StrCat(Printable(worker.name), " at ", worker.address, "\n", text, "\n");
}

}  // namespace

void AddWorkerFlags(CommandLine& command, WorkerChoice* choice) {
  CommandLine::Option worker = command
                                   .Add("--worker", &choice->worker,
                                        "Name of the worker in `baton status`, or its HOST:PORT")
                                   .Value("NAME");
  CommandLine::Option all = command.AddFlag("--all", &choice->all, "All workers of the router");
  worker.Excludes(all);
  command.Add("--router", &choice->router, "HOST:PORT of the router that resolves the names")
      .IsHostPort()
      .FromEnvironment()
      .ShowDefault();
  AddConnectionFlags(command, &choice->connection);
}

absl::StatusOr<std::vector<NamedWorker>> FindWorkers(const WorkerChoice& choice,
                                                     const v1::GetStatusResponse& status) {
  std::vector<NamedWorker> found;
  std::vector<std::string> names;
  for (const v1::WorkerStatus& worker : status.workers()) {
    names.push_back(Printable(worker.worker_id()));
    if (!choice.all && worker.worker_id() != choice.worker) continue;
    if (const absl::Status address = CheckHostPort(worker.address()); !address.ok()) {
      return absl::InternalError(absl::StrCat("the router has worker ", names.back(), " at ",
                                              Printable(worker.address()), ": ",
                                              std::string(address.message())));
    }
    found.push_back({.name = worker.worker_id(), .address = worker.address()});
  }
  std::sort(found.begin(), found.end(),
            [](const NamedWorker& a, const NamedWorker& b) { return a.name < b.name; });
  if (!found.empty()) return found;
  std::sort(names.begin(), names.end());
  if (names.empty()) return absl::NotFoundError("the router has no workers");
  const std::string nearest = NearestName(choice.worker, names);
  return absl::NotFoundError(nearest.empty()
                                 ? absl::StrCat("there is no worker ", Printable(choice.worker),
                                                "; there are: ", absl::StrJoin(names, ", "))
                                 : absl::StrCat("there is no worker ", Printable(choice.worker),
                                                "; did you mean ", nearest, "?"));
}

int ForEachWorker(const WorkerChoice& choice, const WorkerAction& act, bool named) {
  if (!choice.all && choice.worker.empty()) {
    std::fprintf(stderr, "baton: no worker is named: give --worker NAME or --all\n");
    return kExitUsage;
  }
  const absl::StatusOr<ClientConnection> connection = OpenConnection(choice.connection);
  if (!connection.ok()) return ReportError(connection.status());
  const absl::StatusOr<std::vector<NamedWorker>> workers = Choose(choice, *connection);
  if (!workers.ok()) return ReportError(workers.status());
  int exit_code = kExitSuccess;
  for (const NamedWorker& worker : *workers) {
    const std::shared_ptr<grpc::Channel> channel =
        MakeChannel(worker.address, connection->to_workers);
    const absl::StatusOr<std::string> text = act(channel);
    if (text.ok()) {
      std::cout << (choice.all && named ? WithName(worker, *text) : *text) << std::flush;
      continue;
    }
    absl::Status error = ExplainFailure(kWorker, worker.address, *channel, text.status());
    if (choice.all) {
      error = absl::Status(error.code(), absl::StrCat(worker.name, ": ", error.message()));
    }
    const int code = ReportError(error);
    if (exit_code == kExitSuccess) exit_code = code;
  }
  return exit_code;
}

}  // namespace baton
