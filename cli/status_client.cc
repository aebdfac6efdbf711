// `baton status`: workers, pools and queues, as the router knows them.

#include <google/protobuf/util/json_util.h>

#include <iostream>
#include <memory>
#include <string>

#include "absl/strings/str_format.h"
#include "cli/client_commands.h"
#include "cli/commands.h"
#include "cli/router_client.h"

namespace baton {
namespace {

constexpr int64_t kStatusTimeoutMs = 5000;

struct StatusOptions {
  RouterClientOptions client{.router = kDefaultRouter};
  bool json = false;
};

const char* RoleName(v1::WorkerRole role) {
  switch (role) {
    case v1::WORKER_ROLE_PREFILL:
      return "prefill";
    case v1::WORKER_ROLE_DECODE:
      return "decode";
    case v1::WORKER_ROLE_BOTH:
      return "both";
    default:
      return "?";
  }
}

void PrintTable(const v1::GetStatusResponse& status) {
  std::cout << absl::StrFormat("router: %s, %d active, %d requests, %d failed\n",
                               status.ready() ? "ready" : "not ready", status.active_requests(),
                               status.requests_total(), status.requests_failed());
  std::cout << absl::StrFormat("%-28s %-8s %-21s %5s %5s %5s %6s %6s %6s %6s %7s %9s\n", "worker",
                               "role", "address", "wait", "run", "kv", "free", "cached", "owned",
                               "total", "hit %", "RSS MiB");
  for (const v1::WorkerStatus& worker : status.workers()) {
    const v1::PoolStatus& pool = worker.pool();
    const double hit_percent = pool.lookup_tokens() == 0
                                   ? 0
                                   : 100.0 * static_cast<double>(pool.hit_tokens()) /
                                         static_cast<double>(pool.lookup_tokens());
    std::cout << absl::StrFormat("%-28s %-8s %-21s %5d %5d %5d %6d %6d %6d %6d %7.1f %9d%s\n",
                                 worker.worker_id(), RoleName(worker.role()), worker.address(),
                                 worker.waiting(), worker.running(), worker.waiting_for_kv(),
                                 pool.free_blocks(), pool.cached_blocks(), pool.owned_blocks(),
                                 pool.total_blocks(), hit_percent, worker.resident_bytes() >> 20,
                                 worker.draining() ? "  draining" : "");
  }
}

absl::Status PrintJson(const v1::GetStatusResponse& status) {
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string text;
  const auto converted = google::protobuf::util::MessageToJsonString(status, &text, options);
  if (!converted.ok()) return absl::InternalError(std::string(converted.message()));
  std::cout << text << std::endl;
  return absl::OkStatus();
}

int Status(const StatusOptions& options) {
  RouterClient client(options.client);
  const absl::StatusOr<v1::GetStatusResponse> status = client.GetStatus(kStatusTimeoutMs);
  if (!status.ok()) return ReportError(status.status());
  if (!options.json) {
    PrintTable(*status);
    return 0;
  }
  const absl::Status printed = PrintJson(*status);
  return printed.ok() ? 0 : ReportError(printed);
}

}  // namespace

void AddStatusCommand(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("status", "Show workers, pools and queues");
  auto options = std::make_shared<StatusOptions>();
  command->add_option("--router", options->client.router, "HOST:PORT of the router")
      ->capture_default_str();
  command->add_flag("--json", options->json, "Print one JSON object");
  command->callback([options, &exit_code] { exit_code = Status(*options); });
}

void AddClientCommands(CLI::App& app, CLI::App& inspect, int& exit_code) {
  AddGenerateCommand(app, exit_code);
  AddChatCommand(app, exit_code);
  AddStatusCommand(app, exit_code);
  AddUpCommand(app, exit_code);
  AddInspectWorkerCommand(inspect, exit_code);
}

}  // namespace baton
