#include "cli/fleet_plan.h"

#include <iterator>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/host_port.h"

namespace baton {
namespace {

// Niceness of decode workers next to prefill workers on shared processors. Without it, decode steps
// run as early as possible. There are then many small steps, and each reads all weights. With a
// fifth of the time next to a busy prefill worker, a decode worker has more sequences in each step.
// Both together then answer a quarter more.
constexpr int kDecodeNiceBesidePrefill = 6;

void Append(std::vector<std::string>& arguments, const std::vector<std::string>& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
}

// Sets an option. Removes its earlier values in both forms ("NAME VALUE", "NAME=VALUE"), because
// programs refuse an option that is given twice.
void SetOption(std::vector<std::string>& arguments, const std::string& name, int64_t value) {
  for (auto at = arguments.begin(); at != arguments.end();) {
    const bool alone = *at == name && std::next(at) != arguments.end();
    at = alone                         ? arguments.erase(at, at + 2)
         : at->starts_with(name + "=") ? arguments.erase(at)
                                       : std::next(at);
  }
  arguments.push_back(absl::StrCat(name, "=", value));
}

// Adds the certificate of a role to the arguments of its process.
void AppendTls(const FleetOptions& options, const std::string& role,
               std::vector<std::string>& arguments) {
  if (options.tls_directory.empty()) return;
  arguments.push_back(absl::StrCat("--tls-cert=", options.tls_directory, "/", role, ".pem"));
  arguments.push_back(absl::StrCat("--tls-ca=", options.tls_directory, "/ca.crt"));
}

// Part of the plan for the workers of one role.
struct RolePlan {
  std::string role;     // begins the workers' names
  std::string program;  // name of the program
  int32_t count = 0;
  const std::vector<std::string>& arguments;
  const std::optional<int64_t>& kv_cache_mib;
};

FleetMember PlannedWorker(const FleetOptions& options, const std::string& directory,
                          const std::string& router, const RolePlan& plan, int32_t index) {
  FleetMember worker = {
      .name = absl::StrCat(plan.role, "-", index),
      .arguments = {absl::StrCat(directory, "/", plan.program), "--listen=127.0.0.1:0"}};
  std::vector<std::string>& arguments = worker.arguments;
  arguments.push_back(absl::StrCat("--worker-id=", worker.name));
  arguments.push_back(absl::StrCat("--router=", router));
  if (const auto metrics = ParseHostPort(options.metrics_address); metrics.ok()) {
    arguments.push_back(absl::StrCat("--metrics-listen=", JoinHostPort(metrics->host, 0)));
  }
  AppendTls(options, "worker", arguments);
  if (!options.model.empty()) arguments.push_back(absl::StrCat("--model=", options.model));
  Append(arguments, options.worker_arguments);
  Append(arguments, plan.arguments);
  if (plan.kv_cache_mib) SetOption(arguments, "--kv-cache-mib", *plan.kv_cache_mib);
  if (plan.role == "decode" && options.prefill_workers > 0) {
    worker.variables.push_back(absl::StrCat("BATON_NICE=", kDecodeNiceBesidePrefill));
  }
  return worker;
}

}  // namespace

FleetMember PlannedRouter(const FleetOptions& options, const std::string& directory) {
  FleetMember router = {
      .name = "router",
      .arguments = {
          absl::StrCat(directory, "/baton-router"),
          absl::StrCat("--listen=", options.router_address),
          absl::StrCat("--min-prefill-workers=", options.prefill_workers + options.both_workers),
          absl::StrCat("--min-decode-workers=", options.decode_workers + options.both_workers)}};
  if (!options.http_address.empty()) {
    router.arguments.push_back(absl::StrCat("--http-listen=", options.http_address));
  }
  AppendTls(options, "router", router.arguments);
  if (!options.tls_directory.empty() && !options.http_address.empty()) {
    router.arguments.push_back(
        absl::StrCat("--http-tls-cert=", options.tls_directory, "/router.pem"));
  }
  if (!options.api_keys.empty()) {
    router.arguments.push_back(absl::StrCat("--api-keys=", options.api_keys));
  }
  if (!options.metrics_address.empty()) {
    router.arguments.push_back(absl::StrCat("--metrics-listen=", options.metrics_address));
  }
  Append(router.arguments, options.router_arguments);
  return router;
}

std::vector<FleetMember> PlannedWorkers(const FleetOptions& options, const std::string& directory,
                                        const std::string& router) {
  const RolePlan roles[] = {{"prefill", "baton-prefill-worker", options.prefill_workers,
                             options.prefill_arguments, options.prefill_kv_cache_mib},
                            {"decode", "baton-decode-worker", options.decode_workers,
                             options.decode_arguments, options.decode_kv_cache_mib},
                            {"both", "baton-worker", options.both_workers, options.both_arguments,
                             options.both_kv_cache_mib}};
  std::vector<FleetMember> workers;
  for (const RolePlan& plan : roles) {
    for (int32_t i = 0; i < plan.count; ++i) {
      workers.push_back(PlannedWorker(options, directory, router, plan, i));
    }
  }
  return workers;
}

}  // namespace baton
