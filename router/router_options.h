// Settings of the router, without its server's settings.
//
// Thread safety: plain data.
#pragma once

#include <string>

#include "common/settings.h"
#include "router/role_planning.h"
#include "routing/routing_policy.h"
#include "routing/worker_registry.h"

namespace baton {

struct RouterOptions {
  std::string advertise;  // address in the `ready` line; empty: the listening address
  RoutingOptions routing;
  std::string pin_model;        // name or fingerprint; empty: the first worker's
  std::string pin_fingerprint;  // WorkerReport::fingerprint; empty: the first worker's
  bool mixed_fingerprints = false;
  int64_t worker_expiry_ms = 3000;
  int64_t worker_silence_ms = 900;
  int32_t max_workers = 4096;
  int64_t max_prompt_bytes = 4 << 20;
  std::string chunk_separator;  // splits prompts of requests that set none; empty: off
  int32_t index_units = 1 << 22;
  int64_t index_wait_ms = 5000;      // for a worker's first events before the router is ready
  int64_t client_stall_ms = 30'000;  // a client that reads nothing for this long loses its answer
  int64_t report_wait_ms = 1000;     // for a prefill worker's figures after the answer's end
  double pull_patience = 10;         // times the estimated time of a pull
  int64_t pull_least_ms = 250;       // shortest timeout of a pull
  int32_t request_log_lines = 5;     // a second, of the log about requests; 0: none
  RolePlanningOptions roles;
  int32_t min_prefill_workers = 0;
  int32_t min_decode_workers = 1;
  std::string tenants;       // file of tenants' limits (router/tenant_table.h); empty: no limits
  int32_t router_count = 1;  // routers that share the limits of tenants
  int32_t tenant_window =
      2;  // with `tenants`: requests for each worker that wait for a first token
};
void RegisterSettings(RouterOptions& options, SettingList& settings);
// The parts of them that `baton simulate` has too: of the policies, and of the role planner.
void RegisterRoutingSettings(RoutingOptions& options, SettingList& settings);
void RegisterRolePlannerSettings(RolePlanningOptions& options, SettingList& settings);

}  // namespace baton
