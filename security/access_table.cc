#include "security/access_table.h"

#include "common/str_cat.h"

namespace baton {
namespace {

using enum CallerRole;

constexpr RoleSet kEveryone = {kAnonymous, kClient, kOperator, kRouter, kWorker};
constexpr RoleSet kCertified = {kClient, kOperator, kRouter, kWorker};
constexpr RoleSet kClients = {kClient, kOperator};
// Peers know the answers anyway: routers get them from workers.
constexpr RoleSet kOperators = {kOperator, kRouter, kWorker};
constexpr RoleSet kRouters = {kRouter};
constexpr RoleSet kWorkers = {kWorker};

constexpr AccessRow kTable[] = {
    // Every gRPC port.
    {"/grpc.health.v1.Health/Check", kEveryone},
    {"/grpc.health.v1.Health/Watch", kCertified},
    {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", kCertified},

    // Routers: the public API.
    {"/baton.v1.Inference/Generate", kClients},
    {"/baton.v1.Inference/Tokenize", kClients},
    {"/baton.v1.Inference/Detokenize", kClients},
    {"/baton.v1.Inference/GetModel", kClients},
    {"/baton.v1.Inference/GetStatus", kOperators},
    {"/baton.v1.Registry/Heartbeat", kWorkers},

    // Workers.
    {"/baton.v1.DecodeWorker/Decode", kRouters},
    {"/baton.v1.DecodeWorker/PrefillLocally", kRouters},
    {"/baton.v1.PrefillWorker/Prefill", kRouters},
    {"/baton.v1.Worker/Ping", kOperators},
    {"/baton.v1.Worker/GetWorkerStatus", kOperators},
    {"/baton.v1.Worker/GetTokenizer", kOperators},
    {"/baton.v1.Worker/Inspect", kOperators},
    {"/baton.v1.Worker/StreamKvEvents", kOperators},
    {"/baton.v1.Worker/PullPrefix", kRouters},
    {"/baton.v1.Worker/SendPrefix", kRouters},
    {"/baton.v1.Worker/ResizePool", kOperators},
    {"/baton.v1.Worker/ClearCache", kOperators},
    {"/baton.v1.Worker/ClearChunks", kOperators},
    {"/baton.v1.Worker/ListChunks", kOperators},
    {"/baton.v1.Worker/SetRole", kOperators},

    // The router's HTTP port.
    {"POST /v1/chat/completions", kClients},
    {"POST /v1/completions", kClients},
    {"GET /v1/models", kClients},
    {"GET /v1/models/", kClients},
    {"GET /health", kEveryone},
};

}  // namespace

std::span<const AccessRow> AccessTable() { return kTable; }

std::optional<RoleSet> WhoMayCall(std::string_view name) {
  for (const AccessRow& row : kTable) {
    if (row.name == name) return row.allowed;
  }
  return std::nullopt;
}

absl::Status CheckAccess(std::string_view name, RoleSet caller) {
  const std::optional<RoleSet> allowed = WhoMayCall(name);
  if (!allowed.has_value()) {
    return absl::PermissionDeniedError(StrCat("no role may call ", name.substr(0, 200)));
  }
  if (allowed->Has(kAnonymous) || caller.Meets(*allowed)) return absl::OkStatus();
  if (caller.empty()) return absl::UnauthenticatedError("unauthenticated");
  return absl::PermissionDeniedError(
      StrCat("the caller is ", RoleNames(caller), "; ", name, " is for: ", RoleNames(*allowed)));
}

}  // namespace baton
