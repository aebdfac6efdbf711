#include "worker_rpc/worker_program.h"

#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/address_options.h"
#include "common/backlog_news.h"
#include "common/check.h"
#include "common/command_line.h"
#include "common/exit_code.h"
#include "common/host_port.h"
#include "common/listening_sockets.h"
#include "common/man_page.h"
#include "common/settings.h"
#include "common/status_macros.h"
#include "common/termination.h"
#include "engine/engine_options.h"
#include "engine/peer_transport.h"
#include "observe/observation_server.h"
#include "security/listen_policy.h"
#include "security/own_certificate.h"
#include "tracing/otlp/otlp_collector.h"
#include "tracing/otlp/otlp_exporter.h"
#include "worker_rpc/freed_blocks.h"
#include "worker_rpc/worker_metrics.h"

namespace baton {
namespace {

// Keepalive of workers' servers. If a router is gone or frozen, its requests hold blocks until the
// connection is closed, after 1.3 seconds.
constexpr int32_t kKeepaliveMs = 400;
constexpr int32_t kWorkerKeepaliveTimeoutMs = 900;
constexpr int kHealthIntervalMs = BacklogNews::kLookEveryMs;  // between two looks at the engine

struct WorkerOptions {
  EngineOptions engine;
  // A high limit: the engine's queue decides which requests wait, because it knows priorities.
  RpcServerOptions server = {.max_active_requests = 4096};
  std::string advertise;
  std::string transfer_listen = "127.0.0.1:0";
  std::string transfer_advertise;
  TransferMedium transport{};
  std::string metrics_listen;
  TracingOptions tracing;
  std::string worker_id;
  v1::WorkerRole role = v1::WORKER_ROLE_UNSPECIFIED;
  int32_t nice = 0;
  std::vector<std::string> routers;
};

void RegisterRole(WorkerOptions& options, SettingList& settings) {
  settings.AddChoice<v1::WorkerRole>(
      "role", &options.role,
      {{"both", v1::WORKER_ROLE_BOTH},
       {"prefill", v1::WORKER_ROLE_PREFILL},
       {"decode", v1::WORKER_ROLE_DECODE}},
      "Role at the start. prefill: compute prompts and send their KV. decode: generate tokens. "
      "both: do either. `baton set-role` changes it.");
}

void RegisterSettings(WorkerOptions& options, SettingList& settings) {
  RegisterSettings(options.server, settings);
  settings.Add(
      "advertise", &options.advertise,
      "HOST or HOST:PORT at which other processes reach this worker. Without a port, the port of "
      "--listen. Empty: the host of --listen, or 127.0.0.1 if that is a wildcard.",
      "HOST:PORT");
  settings.Add("transfer-listen", &options.transfer_listen,
               "HOST:PORT for KV transfers from other workers. Port 0 picks a free port.",
               "HOST:PORT");
  settings.Add("transfer-advertise", &options.transfer_advertise,
               "HOST or HOST:PORT at which other workers reach this worker for KV transfers. "
               "Empty: the host of --advertise, or else that of --transfer-listen.",
               "HOST:PORT");
  settings.AddChoice<TransferMedium>(
      "transport", &options.transport, TransferMediumNames(),
      "How KV comes from other workers. shm: shared memory, on one host only. nccl: from GPU to "
      "GPU if both workers have a GPU and NCCL, else tcp. auto: on a GPU as nccl; on a CPU shm if "
      "both workers are on one host, else tcp.");
  settings.Add("nccl-plaintext", &options.engine.nccl_plaintext,
               "With --tls-cert: allow KV over NCCL, which does not encrypt. If off, KV between "
               "GPUs goes over TCP.");
  settings.Add("metrics-listen", &options.metrics_listen,
               "HOST:PORT for /metrics, /livez and /readyz over HTTP. Port 0 picks a free port. "
               "Empty: off.",
               "HOST:PORT");
  RegisterSettings(options.tracing, settings);
  settings.Add(
      "worker-id", &options.worker_id,
      "Name of this worker in the fleet. Empty: a name made from role, host and process id.",
      "NAME");
  settings.Add("nice", &options.nice, 0, 19,
               "Nice value of the process, as in nice(1): a higher value means a lower CPU "
               "priority. `baton up` sets 6 for decode workers that share a machine with prefill "
               "workers. Their steps then have larger batches.");
}

std::string MakeWorkerId(const std::string& prefix) {
  char host[256] = "localhost";
  gethostname(host, sizeof(host) - 1);
  return absl::StrCat(prefix, "-", host, "-", getpid());
}

// Call this before anything is loaded.
absl::Status CheckPorts(const WorkerOptions& options) {
  RETURN_IF_ERROR(CheckAddresses({{"--listen", options.server.listen, false},
                                  {"--transfer-listen", options.transfer_listen},
                                  {"--metrics-listen", options.metrics_listen}}));
  RETURN_IF_ERROR(CheckCollector(options.tracing));
  RETURN_IF_ERROR(CheckServerSecurity(options.server));
  for (const std::string& warning :
       OwnCertificateWarnings(options.server.tls, CallerRole::kWorker)) {
    LOG(WARNING) << warning;
  }
  return absl::OkStatus();
}

// Sets the files with which KV over TCP is encrypted. `options.engine` names the port.
absl::Status SecureTransfers(WorkerOptions& options) {
  options.engine.transfer_tls = options.server.tls;
  if (options.server.tls.any() || options.server.plaintext) return absl::OkStatus();
  return CheckPlaintextListen("--transfer-listen", options.engine.transfer_listen,
                              "--tls-cert and --tls-ca");
}

// Returns the host to advertise for a server that listens at `listen` when no --advertise option
// was given. Empty if `listen` is empty or invalid.
std::string HostToAdvertise(const std::string& option, const std::string& listen) {
  const absl::StatusOr<HostPort> where = ParseHostPort(listen);
  if (!where.ok()) return "";
  if (!IsWildcardHost(where->host)) return where->host;
  LOG(WARNING) << option << " " << listen
               << " accepts connections to every address of this machine, "
               << "but there is no --" << (option == "--listen" ? "" : "transfer-")
               << "advertise option. The worker advertises 127.0.0.1, so only "
               << "processes on this machine can connect";
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

// Returns the first error that a start with these options would meet before the weights are loaded:
// files that cannot be read, addresses that are in use, settings that do not fit the model.
absl::Status CheckStart(const WorkerOptions& options) {
  RETURN_IF_ERROR(RpcServer::Start(options.server, {}, {}).status());
  for (const std::string& address : {options.engine.transfer_listen, options.metrics_listen}) {
    if (address.empty()) continue;
    ASSIGN_OR_RETURN(const HostPort where, ParseHostPort(address));
    RETURN_IF_ERROR(ListenAt(where).status());
  }
  return Engine::Check(options.engine);
}

// Waits for a signal or the failure of the device. Health checks fail while the engine hangs. Tells
// the routers early of blocks that became free, and several routers of prompts that wait.
// Returns the signal's number, or the reason why the device failed.
absl::StatusOr<int> AwaitEnd(Engine& engine, WorkerServer& server, Termination& termination) {
  bool serving = true;
  FreedBlocks freed;
  BacklogNews backlog(engine.options().token_budget);
  for (;;) {
    const int signal_number = termination.Wait(kHealthIntervalMs);
    if (signal_number >= 0) return signal_number;
    RETURN_IF_ERROR(engine.DeviceHealth());
    const EngineStatus status = engine.Status();
    const bool backlog_changed = backlog.Changed(status.prompt_tokens_left);
    if (freed.Changed(status) || (backlog_changed && server.routers() > 1)) server.TellRouters();
    const absl::Status alive = engine.CheckWatchdog();
    if (alive.ok() == serving) continue;
    serving = alive.ok();
    server.SetServing(serving);
    if (serving) {
      LOG(INFO) << "the engine makes progress again";
    } else {
      LOG(ERROR) << "not serving: " << alive.message();
    }
  }
}

// Ends the process without destructors: each of them could wait for the failed device.
[[noreturn]] void EndWithFailedDevice(const absl::Status& why, const WorkerProgram& program,
                                      WorkerServer& server) {
  std::cerr << program.name << ": " << why.message() << "\n"
            << program.name << ": this worker leaves its routers and ends with exit code "
            << kExitDeviceFailed << "; start it again to use the device" << std::endl;
  server.Fail();
  google::FlushLogFiles(google::INFO);
  std::_Exit(kExitDeviceFailed);
}

ObservationSource SourceOf(Engine& engine, WorkerServer& server) {
  ObservationSource source;
  source.alive = [&engine] { return engine.CheckWatchdog(); };
  source.ready = [&server]() -> absl::Status {
    if (!server.CurrentStatus().draining()) return absl::OkStatus();
    return absl::UnavailableError("the worker is draining");
  };
  source.refresh = [&engine, &server](MetricSet& metrics) {
    SetWorkerMetrics(server.CurrentStatus(), engine.Status(), metrics);
    metrics.Set(Metric::kWorkerEngineHung, engine.CheckWatchdog().ok() ? 0 : 1);
  };
  return source;
}

absl::Status Serve(WorkerOptions& options, const WorkerProgram& program, Termination& termination) {
  ConcurrencyLimit limit(
      options.server.max_active_requests);  // must outlive the engine: its sinks hold slots
  MetricSet metrics(MetricPrograms::kWorkers);
  // Must outlive the engine, whose sinks record spans.
  const std::unique_ptr<OtlpExporter> traces =
      OtlpExporter::Start(options.tracing, program.name, options.worker_id, &metrics);
  options.engine.metrics = &metrics;
  std::unique_ptr<ObservationServer> observation;
  if (!options.metrics_listen.empty()) {  // before the model is loaded, which may take long
    ASSIGN_OR_RETURN(observation,
                     ObservationServer::Start(options.metrics_listen, program.name, &metrics));
    std::cout << "metrics " << observation->address() << std::endl;
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Create(options.engine));
  options.engine = engine->options();
  std::cerr << engine->StartupReport() << std::flush;

  ASSIGN_OR_RETURN(
      const std::unique_ptr<WorkerServer> server,
      WorkerServer::Start(
          engine.get(), &limit,
          {.server = options.server,
           .worker_id = options.worker_id,
           .advertise = options.advertise,
           .role = options.role,
           .routers = options.routers,
           .metrics_address =
               observation == nullptr ? "" : observation->ReachableAddress(options.advertise),
           .metrics = &metrics,
           .tracer = traces == nullptr ? nullptr : traces->tracer()},
          program.role_services));
  const Observation observed(observation.get(), SourceOf(*engine, *server));
  if (options.routers.empty()) {
    LOG(WARNING) << "no --router is given, so no router sends requests to this worker";
  }
  std::cout << "ready " << server->address() << std::endl;

  const absl::StatusOr<int> signal_number = AwaitEnd(*engine, *server, termination);
  if (!signal_number.ok()) EndWithFailedDevice(signal_number.status(), program, *server);
  std::cerr << program.name << ": signal " << *signal_number << ", ending\n";
  server->Shutdown();
  // A step that never ends would keep the engine's destructor waiting.
  if (const absl::Status alive = engine->CheckWatchdog(); !alive.ok()) {
    EndWithFailedDevice(alive, program, *server);
  }
  return absl::OkStatus();
}

}  // namespace

int RunWorkerMain(int argc, char** argv, const WorkerProgram& program) {
  google::InitGoogleLogging(argv[0]);
  FLAGS_logtostderr = true;
  Termination termination;
  WorkerOptions options;
  options.server.keepalive_ms = kKeepaliveMs;
  options.server.keepalive_timeout_ms = kWorkerKeepaliveTimeoutMs;
  SettingList worker_settings;
  SettingList engine_settings;
  options.role = program.role;
  if (program.has_role_flag) RegisterRole(options, worker_settings);
  RegisterSettings(options, worker_settings);
  RegisterSettings(options.engine, engine_settings);

  CommandLine line(program.description, program.name);
  line.AddParsedList(
          "--router",
          [&options](const std::string& text) {
            options.routers.push_back(text);
            return ParseRouterTarget(text).status();
          },
          "HOST:PORT of a router to register with, or dns:///NAME:PORT for every address of a "
          "name. Names are looked up again every 5 seconds.")
      .Value("HOST:PORT")
      .FromEnvironment();
  line.AddSettings(worker_settings, "Service");
  line.AddSettings(engine_settings, "Engine");
  bool only_checks = false;
  line.AddFlag("--check", &only_checks, kCheckFlagHelp);
  AddManPageFlag(line);
  if (const std::optional<int> ended = line.Parse(argc, argv)) return *ended;

  if (only_checks) FLAGS_minloglevel = google::GLOG_ERROR;  // the settings alone
  (void)nice(options.nice);  // before any thread starts: threads inherit it
  if (absl::Status status = CheckPorts(options); !status.ok()) {
    std::cerr << program.name << ": " << status.message() << "\n";
    return ExitCodeOf(status);
  }
  const std::string asked = worker_settings.EffectiveValues() + engine_settings.EffectiveValues();
  ChooseAdvertised(options);
  if (options.worker_id.empty()) options.worker_id = MakeWorkerId(program.id_prefix);
  UseMedium(options.transport, options.transfer_listen, options.engine);
  if (absl::Status status = SecureTransfers(options); !status.ok()) {
    std::cerr << program.name << ": " << status.message() << "\n";
    return ExitCodeOf(status);
  }
  options.engine.transfer_advertise = options.transfer_advertise;
  options.engine.kv_events = true;
  if (only_checks) {
    const absl::Status status = CheckStart(options);
    if (status.ok()) std::cout << worker_settings.AllValues() << engine_settings.AllValues();
    if (!status.ok()) std::cerr << program.name << ": " << status.message() << "\n";
    return ExitCodeOf(status);
  }
  std::cerr << program.name << " " << options.worker_id << "\n" << asked << std::flush;
  if (absl::Status status = Serve(options, program, termination); !status.ok()) {
    std::cerr << program.name << ": " << status.message() << "\n";
    return ExitCodeOf(status);
  }
  return kExitSuccess;
}

}  // namespace baton
