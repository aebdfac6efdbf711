// Who may call each RPC method and each HTTP path. A method or path without a row is refused.
//
// Callers of a port without TLS have no certificate. Such a port is on loopback, or its operator
// has declared the network trusted (--plaintext), so the table does not restrict them. The rows
// must exist all the same.
//
// Thread safety: pure functions.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "security/caller.h"

namespace baton {

struct AccessRow {
  // "/baton.v1.Inference/Generate", or "POST /v1/completions". An HTTP path that ends in '/' stands
  // for all longer ones, as in http/http_routes.h.
  std::string_view name;
  RoleSet allowed;
};

std::span<const AccessRow> AccessTable();

// Absent: the method or path has no row.
std::optional<RoleSet> WhoMayCall(std::string_view name);

// Checks a caller with a certificate or a key. Unauthenticated: the caller has no role.
// PermissionDenied: there is no row, or the caller has none of the row's roles. `caller` need not
// contain kAnonymous, because every caller counts as anonymous too.
absl::Status CheckAccess(std::string_view name, RoleSet caller);

}  // namespace baton
