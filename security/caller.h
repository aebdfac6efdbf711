// Who calls: the roles of a certificate or an API key, and the tenant that it belongs to.
//
// A certificate has its roles as URI names (subjectAltName):
//   baton://router, baton://worker    processes of the fleet
//   baton://operator                  people and tools that run the fleet
//   baton://client/TENANT             a client; TENANT is percent-encoded and may be empty
//
// Thread safety: plain data and pure functions.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "common/request_bounds.h"

namespace baton {

enum class CallerRole : uint8_t {
  kAnonymous,  // anyone who can connect
  kClient,
  kOperator,
  kRouter,
  kWorker,
};
inline constexpr int kCallerRoles = 5;

// "anonymous", "client", "operator", "router", "worker".
std::string_view CallerRoleName(CallerRole role);

class RoleSet {
 public:
  constexpr RoleSet() = default;
  constexpr RoleSet(std::initializer_list<CallerRole> roles) {
    for (const CallerRole role : roles) Add(role);
  }
  constexpr void Add(CallerRole role) { bits_ |= 1u << static_cast<unsigned>(role); }
  constexpr bool Has(CallerRole role) const {
    return (bits_ & 1u << static_cast<unsigned>(role)) != 0;
  }
  constexpr bool Meets(RoleSet other) const { return (bits_ & other.bits_) != 0; }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr bool operator==(const RoleSet&) const = default;

 private:
  unsigned bits_ = 0;
};

// Returns the names of the roles, separated by commas.
std::string RoleNames(RoleSet roles);

struct Caller {
  RoleSet roles;
  // Tenant of the certificate or the key. Absent: the caller may name any tenant.
  std::optional<std::string> tenant;
};

// Returns the URI name of a role. `tenant`: for kClient. REQUIRES: not kAnonymous.
std::string RoleUri(CallerRole role, std::string_view tenant = {});

// Returns the roles that a certificate's URI names give. Other URIs are ignored. A certificate that
// is malformed, or names two tenants, gives no role.
Caller CallerOfUris(std::span<const std::string> uris);

// Fills in the tenant of the caller. PermissionDenied if `tenant` names another one.
absl::Status TakeTenant(const Caller& caller, std::string& tenant);

}  // namespace baton
