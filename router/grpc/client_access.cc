#include "router/grpc/client_access.h"

#include <optional>

#include "common/status_macros.h"
#include "security/access_table.h"

namespace baton {

absl::StatusOr<Caller> ClientOfCall(const RpcCaller& caller, std::string_view method,
                                    const ApiKeys* keys, const std::string& api_key) {
  const absl::Status refused = absl::UnauthenticatedError("unauthenticated");
  const Caller anyone = {.roles = {CallerRole::kClient}, .tenant = std::nullopt};
  if (!caller.encrypted) {
    if (keys != nullptr && CheckAccess(method, anyone.roles).ok()) return refused;
    return anyone;  // a method that is not for clients is one of operators, on a trusted network
  }
  if (!caller.caller.roles.empty() && CheckAccess(method, caller.caller.roles).ok()) {
    return caller.caller;
  }
  if (keys == nullptr) {
    RETURN_IF_ERROR(CheckAccess(method, anyone.roles));
    return anyone;
  }
  const std::optional<Caller> found = keys->Find(api_key);
  if (!found.has_value()) return refused;
  RETURN_IF_ERROR(CheckAccess(method, found->roles));
  return *found;
}

}  // namespace baton
