// `baton generate`: answers one prompt, or a file of jobs, through a router.

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cli/chat_sampling.h"
#include "cli/client_commands.h"
#include "cli/failover_runner.h"
#include "cli/job_flags.h"
#include "cli/outcome.h"
#include "cli/router_client.h"
#include "common/exit_code.h"
#include "common/termination.h"
#include "rpc/channel.h"

namespace baton {
namespace {

constexpr int32_t kMaxRetries = 1000;

struct GenerateOptions {
  std::vector<std::string> routers = {kDefaultRouter};
  FailoverOptions failover;
  RouterClientOptions client;  // for each of the routers
  ConnectionFlags connection;
  JobFlags jobs;
};

std::vector<std::unique_ptr<JobRunner>> ConnectTo(const GenerateOptions& options) {
  std::vector<std::unique_ptr<JobRunner>> clients;
  for (const std::string& router : options.routers) {
    RouterClientOptions client = options.client;
    client.router = router;
    clients.push_back(std::make_unique<RouterClient>(client));
  }
  return clients;
}

int Generate(GenerateOptions& options) {
  Termination termination;  // before OpenConnection, which may start threads of gRPC
  absl::StatusOr<ClientConnection> connection = OpenConnection(options.connection);
  if (!connection.ok()) return ReportError(connection.status());
  options.client.connection = *std::move(connection);
  FailoverRunner runner(ConnectTo(options), options.failover);
  std::atomic<bool> interrupted = false;
  std::thread watcher([&] {
    if (termination.Wait() > 0) {
      interrupted = true;
      runner.Interrupt();
    }
  });
  const int exit_code = RunFlaggedJobs(runner, options.jobs);
  termination.Request();
  watcher.join();
  return interrupted ? kExitInterrupted : exit_code;
}

}  // namespace

void AddGenerateCommand(CommandLine& line) {
  CommandLine& command =
      line.AddCommand("generate", "Send prompts to a router and print the answers");
  auto options = std::make_shared<GenerateOptions>();
  command
      .Add("--router", &options->routers,
           "HOST:PORT of a router. If it is unreachable, lost or draining, the next one is asked")
      .Value("HOST:PORT")
      .TakesOne()
      .IsHostPort()
      .FromEnvironment()
      .ShowDefault();
  command
      .Add("--retries", &options->failover.retries,
           "How often to repeat a request if no router accepts it, or if its router is lost. The "
           "first repeat comes after 0.2 s, later ones after at most 2 s. A streamed answer that "
           "has begun is not repeated")
      .Range(0, kMaxRetries)
      .ShowDefault();
  command
      .Add("--timeout-ms", &options->client.timeout_ms,
           "Deadline of each request in milliseconds. 0: none")
      .Range(int64_t{0}, kMaxTimeoutMs)
      .ShowDefault();
  static const std::map<std::string, v1::PrefillPlacement> kPlacements = {
      {"auto", v1::PREFILL_PLACEMENT_UNSPECIFIED},
      {"remote", v1::PREFILL_PLACEMENT_REMOTE},
      {"local", v1::PREFILL_PLACEMENT_LOCAL}};
  command
      .AddParsed(
          "--placement",
          [options](const std::string& name) {
            options->client.placement = kPlacements.at(name);
            return absl::OkStatus();
          },
          "Where prompts are computed. auto: the router decides. remote: on a prefill worker. "
          "local: on the decode worker")
      .Value("NAME")
      .OneOf({"auto", "remote", "local"});
  AddConnectionFlags(command, &options->connection);
  AddJobFlags(command, options->jobs);
  command.ShowWithSettings([&jobs = options->jobs] {
    return ChatSamplingLine(std::nullopt, jobs.flag_is_given, jobs.job.sampling);
  });
  command.OnRun([options] { return Generate(*options); });
}

}  // namespace baton
