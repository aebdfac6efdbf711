// Plans the processes of `baton up` and their arguments.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace baton {

struct FleetOptions {
  std::string model = {};  // empty: the default model
  int32_t prefill_workers = 1;
  int32_t decode_workers = 1;
  int32_t both_workers = 0;         // with both roles
  std::string router_address = {};  // where the router listens; port 0 picks a free one
  std::string http_address = {};    // where it serves HTTP; empty: the router's own settings decide
  // Where the router serves metrics; the workers serve theirs at the same host and free ports.
  // Empty: the programs' own settings decide.
  std::string metrics_address = {};
  std::string tls_directory = {};  // of `baton certs new`; empty: the programs' own settings decide
  std::string api_keys = {};       // file with the clients' keys; empty: likewise
  // Appended to the arguments of the plan.
  std::vector<std::string> worker_arguments = {};   // to every worker
  std::vector<std::string> prefill_arguments = {};  // after those
  std::vector<std::string> decode_arguments = {};
  std::vector<std::string> both_arguments = {};
  std::vector<std::string> router_arguments = {};
  // KV pool of each worker of the role. Absent: the worker's own settings decide.
  std::optional<int64_t> prefill_kv_cache_mib = std::nullopt;
  std::optional<int64_t> decode_kv_cache_mib = std::nullopt;
  std::optional<int64_t> both_kv_cache_mib = std::nullopt;
};

struct FleetMember {
  std::string name;                    // "router", "prefill-0", …
  std::vector<std::string> arguments;  // the program's path first
  // "NAME=VALUE": defaults of the plan. Every other source of a setting overrides them.
  std::vector<std::string> variables = {};
};

// Returns the router's process. `directory` contains the programs.
FleetMember PlannedRouter(const FleetOptions& options, const std::string& directory);
// Returns the workers' processes: prefill workers, then decode workers, then those with both roles.
// They register with the router at `router`.
std::vector<FleetMember> PlannedWorkers(const FleetOptions& options, const std::string& directory,
                                        const std::string& router);

}  // namespace baton
