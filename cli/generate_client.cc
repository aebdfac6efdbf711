// `baton generate`: one prompt, or a file of jobs, through a router.

#include <atomic>
#include <memory>
#include <thread>

#include "cli/client_commands.h"
#include "cli/job_flags.h"
#include "cli/router_client.h"
#include "common/exit_code.h"
#include "common/termination.h"

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

void AddGenerateCommand(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("generate", "Answer through a router");
  auto options = std::make_shared<GenerateOptions>();
  command->add_option("--router", options->client.router, "HOST:PORT of the router")
      ->capture_default_str();
  command
      ->add_option("--timeout-ms", options->client.timeout_ms,
                   "Deadline of each request in milliseconds; 0: none")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  static const std::map<std::string, v1::PrefillPlacement> kPlacements = {
      {"auto", v1::PREFILL_PLACEMENT_UNSPECIFIED},
      {"remote", v1::PREFILL_PLACEMENT_REMOTE},
      {"local", v1::PREFILL_PLACEMENT_LOCAL}};
  command
      ->add_option_function<std::string>(
          "--placement",
          [options](const std::string& name) { options->client.placement = kPlacements.at(name); },
          "Where prompts are computed: auto, remote (a prefill worker), local (the decode worker)")
      ->check(CLI::IsMember({"auto", "remote", "local"}));
  AddJobFlags(*command, options->jobs);
  command->callback([options, &exit_code] { exit_code = Generate(*options); });
}

}  // namespace baton
