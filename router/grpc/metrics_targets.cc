#include "router/grpc/metrics_targets.h"

#include <nlohmann/json.hpp>

#include "rpc/worker_role_name.h"
#include "text/utf8.h"

namespace baton {
namespace {

nlohmann::json Entry(const std::string& address, const std::string& role,
                     const std::string& worker) {
  nlohmann::json labels = {{"baton_role", role}};
  if (!worker.empty()) labels["baton_worker"] = ReplaceInvalidUtf8(worker);
  return {{"targets", {ReplaceInvalidUtf8(address)}}, {"labels", labels}};
}

}  // namespace

std::string MetricsTargetsToJson(const std::string& router_address,
                                 const std::vector<MetricsTarget>& workers) {
  nlohmann::json out = nlohmann::json::array();
  out.push_back(Entry(router_address, "router", ""));
  for (const MetricsTarget& worker : workers) {
    out.push_back(Entry(worker.address, WorkerRoleName(worker.role), worker.worker_id));
  }
  return out.dump();
}

}  // namespace baton
