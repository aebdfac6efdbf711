// `baton generate`: one prompt, or a file of jobs, through a router.

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "cli/client_commands.h"
#include "cli/job_flags.h"
#include "cli/router_client.h"
#include "common/exit_code.h"
#include "common/termination.h"
#include "rpc/channel.h"

namespace baton {
namespace {

struct GenerateOptions {
  RouterClientOptions client{.router = kDefaultRouter};
  JobFlags jobs;
};

int Generate(GenerateOptions& options) {
  Termination termination;
  RouterClient client(options.client);
  std::atomic<bool> interrupted = false;
  std::thread watcher([&] {
    if (termination.Wait() > 0) {
      interrupted = true;
      client.Interrupt();
    }
  });
  const int exit_code = RunFlaggedJobs(client, options.jobs);
  termination.Request();
  watcher.join();
  return interrupted ? kExitInterrupted : exit_code;
}

}  // namespace

void AddGenerateCommand(CommandLine& line) {
  CommandLine& command = line.AddCommand("generate", "Answer through a router");
  auto options = std::make_shared<GenerateOptions>();
  command.Add("--router", &options->client.router, "HOST:PORT of the router")
      .IsHostPort()
      .FromEnvironment()
      .ShowDefault();
  command
      .Add("--timeout-ms", &options->client.timeout_ms,
           "Deadline of each request in milliseconds; 0: none")
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
          "Where prompts are computed: auto, remote (a prefill worker), local (the decode worker)")
      .OneOf({"auto", "remote", "local"});
  AddJobFlags(command, options->jobs);
  command.OnRun([options] { return Generate(*options); });
}

}  // namespace baton
