// baton-router: accepts requests, chooses workers and streams answers.
//
// It prints `listening HOST:PORT` to standard output at once, with the address at which it listens,
// and with --metrics-listen also `metrics HOST:PORT`.
// When requests will succeed, it prints `ready HOST:PORT` with the address for clients
// (--advertise), and with --http-listen also `http HOST:PORT`.

#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include "common/check.h"
#include "common/command_line.h"
#include "common/entropy.h"
#include "common/exit_code.h"
#include "common/host_port.h"
#include "common/man_page.h"
#include "common/settings.h"
#include "common/status_macros.h"
#include "common/termination.h"
#include "router/server/router_server.h"

namespace {

constexpr int kTickMs = 100;

// Routers of one fleet need different seeds, so that they do not all make the same choices.
int64_t DrawSeed() { return 1 + static_cast<int64_t>(baton::EntropyBits() >> 32); }

absl::Status Serve(const baton::RouterServerOptions& options, baton::Termination& termination) {
  ASSIGN_OR_RETURN(const std::unique_ptr<baton::RouterServer> router,
                   baton::RouterServer::Start(options));
  std::cout << "listening " << router->rpc().address() << std::endl;
  if (const std::string metrics = router->metrics_address(); !metrics.empty()) {
    std::cout << "metrics " << metrics << std::endl;
  }
  std::string address = router->rpc().address();
  if (!options.router.advertise.empty()) {
    const baton::HostPort where =
        baton::AdvertisedHostPort(options.router.advertise, router->rpc().port());
    address = baton::JoinHostPort(where.host, where.port);
  }
  bool announced = false;
  int signal_number = -1;
  while (signal_number < 0) {
    if (router->Tick() && !announced) {
      // One write: `baton up` prints other lines behind these two.
      std::cout << "ready " << address << "\n";
      if (router->http() != nullptr) std::cout << "http " << router->http()->address() << "\n";
      std::cout << std::flush;
      announced = true;
    }
    signal_number = termination.Wait(kTickMs);
  }
  std::cerr << "baton-router: signal " << signal_number << ", ending\n";
  router->Shutdown();
  return absl::OkStatus();
}

// Returns the error that a start with these options would meet.
absl::Status Check(baton::RouterServerOptions options) {
  options.server.shutdown_delay_ms = 0;
  return baton::RouterServer::Start(options).status();
}

}  // namespace

int main(int argc, char** argv) {
  google::InitGoogleLogging(argv[0]);
  FLAGS_logtostderr = true;
  baton::Termination termination;
  baton::RouterServerOptions options;
  options.server.listen = "127.0.0.1:8090";
  baton::SettingList settings;
  RegisterSettings(options, settings);
  baton::CommandLine line("Takes requests, chooses workers, streams answers.", "baton-router");
  line.AddSettings(settings, "Router");
  bool only_checks = false;
  line.AddFlag("--check", &only_checks, baton::kCheckFlagHelp);
  baton::AddManPageFlag(line);
  if (const std::optional<int> ended = line.Parse(argc, argv)) return *ended;

  if (only_checks) {
    FLAGS_minloglevel = google::GLOG_ERROR;  // the settings alone
    const absl::Status status = Check(options);
    if (status.ok()) std::cout << settings.AllValues();
    if (!status.ok()) std::cerr << "baton-router: " << status.message() << "\n";
    return baton::ExitCodeOf(status);
  }
  std::cerr << "baton-router\n" << settings.EffectiveValues();
  if (options.router.routing.seed == 0) options.router.routing.seed = DrawSeed();
  if (absl::Status status = Serve(options, termination); !status.ok()) {
    std::cerr << "baton-router: " << status.message() << "\n";
    return baton::ExitCodeOf(status);
  }
  return baton::kExitSuccess;
}
