// Addresses of all programs' metrics, as Prometheus's HTTP service discovery (http_sd) reads them.
//
// Thread safety: pure functions.
#pragma once

#include <string>
#include <vector>

#include "router/grpc/latest_heartbeats.h"

namespace baton {

// Returns a JSON list with one entry for the router and one for each worker. Labels:
// `baton_role` (router, prefill, decode, both) and `baton_worker` (the worker's id).
std::string MetricsTargetsToJson(const std::string& router_address,
                                 const std::vector<MetricsTarget>& workers);

}  // namespace baton
