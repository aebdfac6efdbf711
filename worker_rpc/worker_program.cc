#include "worker_rpc/worker_program.h"

#include <unistd.h>

#include <iostream>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/command_line.h"
#include "common/exit_code.h"
#include "common/host_port.h"
#include "common/settings.h"
#include "common/status_macros.h"
#include "common/termination.h"
#include "engine/engine_options.h"
#include "engine/peer_transport.h"

namespace baton {
namespace {

// A router that is gone or frozen holds blocks here until its connection is cut: 1.3 seconds.
constexpr int32_t kKeepaliveMs = 400;
constexpr int32_t kKeepaliveTimeoutMs = 900;

struct WorkerOptions {
  EngineOptions engine;
  // Who may wait is for the engine's queue to say, which knows priorities.
  RpcServerOptions server = {.max_active_requests = 4096};
  std::string advertise;
  std::string transfer_listen = "127.0.0.1:0";
  std::string transfer_advertise;
  TransferMedium transport{};
  std::string worker_id;
  int32_t nice = 0;
  std::vector<std::string> routers;
};

void RegisterSettings(WorkerOptions& options, SettingList& settings) {
  RegisterSettings(options.server, settings);
  settings.Add("advertise", &options.advertise,
               "HOST or HOST:PORT under which others reach this worker; without a port the one it "
               "listens on. The host it listens on when empty, or 127.0.0.1 where that is any.");
  settings.Add("transfer-listen", &options.transfer_listen,
               "HOST:PORT for KV transfers from other workers; port 0 picks a free one.");
  settings.Add("transfer-advertise", &options.transfer_advertise,
               "HOST or HOST:PORT under which other workers reach it for KV transfers; the host of "
               "--advertise when empty, or else as --transfer-listen says.");
  settings.AddChoice<TransferMedium>(
      "transport", &options.transport, TransferMediumNames(),
      "How KV comes from other workers: tcp, shm (shared memory, from this host alone), nccl (GPU "
      "to GPU where both workers have NCCL and a device, tcp otherwise), or auto: shm where both "
      "are on one host, tcp otherwise.");
  settings.Add(
      "worker-id", &options.worker_id,
      "Name of this worker in the cluster; made up from role, host and process id when empty.");
  settings.Add(
      "nice", &options.nice, 0, 19,
      "How much CPU priority to give up, as nice(1) does. `baton up` gives decode workers 6 where "
      "prefill workers share the machine: what waits meanwhile is decoded in larger "
      "batches.");
}

std::string MakeWorkerId(const std::string& prefix) {
  char host[256] = "localhost";
  gethostname(host, sizeof(host) - 1);
  return absl::StrCat(prefix, "-", host, "-", getpid());
}

// Before anything is loaded.
absl::Status CheckListen(const WorkerOptions& options) {
  for (const auto& [name, text] : {std::pair("--listen", &options.server.listen),
                                   std::pair("--transfer-listen", &options.transfer_listen)}) {
    const absl::Status status = ParseHostPort(*text).status();
    const bool without_tcp = text->empty() && text == &options.transfer_listen;
    if (!status.ok() && !without_tcp)
      return absl::InvalidArgumentError(absl::StrCat(name, ": ", status.message()));
  }
  return absl::OkStatus();
}

// The host that others are told of who listens at `listen` and was not told how they reach it.
// Empty where `listen` is.
std::string HostToAdvertise(const std::string& option, const std::string& listen) {
  const absl::StatusOr<HostPort> where = ParseHostPort(listen);
  if (!where.ok()) return "";
  if (!IsWildcardHost(where->host)) return where->host;
  LOG(WARNING) << option << " " << listen << " takes connections to any address of this machine, "
               << "and no --" << (option == "--listen" ? "" : "transfer-")
               << "advertise says which one others reach: they are told 127.0.0.1, so only "
               << "processes of this machine can connect";
  return "127.0.0.1";
}

void ChooseAdvertised(WorkerOptions& options) {
  const bool told = !options.advertise.empty();
  if (options.transfer_advertise.empty()) {
    options.transfer_advertise =
        told ? AdvertisedHostPort(options.advertise, 0).host
             : HostToAdvertise("--transfer-listen", options.transfer_listen);
  }
  if (!told) options.advertise = HostToAdvertise("--listen", options.server.listen);
}

absl::Status Serve(WorkerOptions& options, const SettingList& engine_settings,
                   const WorkerProgram& program, Termination& termination) {
  ConcurrencyLimit limit(
      options.server.max_active_requests);  // outlives the engine, whose sinks hold passes
  const std::vector<std::string> asked = engine_settings.Values();
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Create(options.engine));
  options.engine = engine->options();
  std::cerr << "what automatic values came to:\n"
            << engine_settings.ValuesChangedSince(asked) << engine->StartupReport() << std::flush;

  ASSIGN_OR_RETURN(const std::unique_ptr<WorkerServer> server,
                   WorkerServer::Start(engine.get(), &limit,
                                       {.server = options.server,
                                        .worker_id = options.worker_id,
                                        .advertise = options.advertise,
                                        .role = program.role,
                                        .routers = options.routers},
                                       program.role_services));
  std::cout << "ready " << server->address() << std::endl;

  const int signal_number = termination.Wait();
  std::cerr << program.name << ": signal " << signal_number << ", ending\n";
  server->Shutdown();
  return absl::OkStatus();
}

}  // namespace

int RunWorkerMain(int argc, char** argv, const WorkerProgram& program) {
  google::InitGoogleLogging(argv[0]);
  FLAGS_logtostderr = true;
  Termination termination;
  WorkerOptions options;
  options.server.keepalive_ms = kKeepaliveMs;
  options.server.keepalive_timeout_ms = kKeepaliveTimeoutMs;
  SettingList worker_settings;
  SettingList engine_settings;
  RegisterSettings(options, worker_settings);
  RegisterSettings(options.engine, engine_settings);

  CommandLine line(program.description, program.name);
  line.Add("--router", &options.routers, "HOST:PORT of a router to register with; repeatable.")
      .IsHostPort();
  line.AddSettings(worker_settings, "Service");
  line.AddSettings(engine_settings, "Engine");
  if (const std::optional<int> ended = line.Parse(argc, argv)) return *ended;

  (void)nice(options.nice);  // before there are threads, which inherit it
  if (absl::Status status = CheckListen(options); !status.ok()) {
    std::cerr << program.name << ": " << status.message() << "\n";
    return ExitCodeOf(status);
  }
  ChooseAdvertised(options);
  if (options.worker_id.empty()) options.worker_id = MakeWorkerId(program.id_prefix);
  UseMedium(options.transport, options.transfer_listen, options.engine);
  options.engine.transfer_advertise = options.transfer_advertise;
  options.engine.kv_events = true;
  std::cerr << program.name << " " << options.worker_id << "\n"
            << worker_settings.EffectiveValues() << engine_settings.EffectiveValues() << std::flush;
  if (absl::Status status = Serve(options, engine_settings, program, termination); !status.ok()) {
    std::cerr << program.name << ": " << status.message() << "\n";
    return ExitCodeOf(status);
  }
  return kExitSuccess;
}

}  // namespace baton
