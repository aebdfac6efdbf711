// Which client makes a call of the public API over gRPC: by its certificate, or by the API key in
// the request.
//
// Thread safety: functions may be called from any thread.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "rpc/rpc_access.h"
#include "security/api_keys.h"
#include "security/caller.h"

namespace baton {

// Returns the caller of `method`. `keys`: null if the router has none.
//   Encrypted: the certificate counts, if it gives a role that may call the method. Otherwise the
//   key counts. A router without keys that takes clients without certificate takes all of them.
//   Not encrypted: keys are not read. A router without keys trusts its network; one with keys
//   refuses.
// Unauthenticated says nothing more. PermissionDenied: the key is not for this method.
absl::StatusOr<Caller> ClientOfCall(const RpcCaller& caller, std::string_view method,
                                    const ApiKeys* keys, const std::string& api_key);

}  // namespace baton
