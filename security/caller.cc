#include "security/caller.h"

#include <array>

#include "common/check.h"
#include "common/printable_text.h"
#include "common/str_cat.h"

namespace baton {
namespace {

constexpr std::string_view kScheme = "baton://";
constexpr std::string_view kClientPrefix = "client/";
constexpr std::array<std::string_view, kCallerRoles> kNames = {"anonymous", "client", "operator",
                                                               "router", "worker"};

bool IsUnreserved(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '.' || c == '_' || c == '~';
}

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

std::string PercentEncoded(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    if (IsUnreserved(c)) {
      out += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      out += '%';
      out += kDigits[byte >> 4];
      out += kDigits[byte & 15];
    }
  }
  return out;
}

// Absent: not percent-encoded, or longer than a tenant may be.
std::optional<std::string> DecodedTenant(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      if (!IsUnreserved(text[i])) return std::nullopt;
      out += text[i];
      continue;
    }
    if (i + 2 >= text.size()) return std::nullopt;
    const int high = HexValue(text[i + 1]);
    const int low = HexValue(text[i + 2]);
    if (high < 0 || low < 0) return std::nullopt;
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  if (out.size() > kMaxTenantBytes) return std::nullopt;
  return out;
}

}  // namespace

std::string_view CallerRoleName(CallerRole role) { return kNames[static_cast<size_t>(role)]; }

std::string RoleNames(RoleSet roles) {
  std::string out;
  for (int i = 0; i < kCallerRoles; ++i) {
    const auto role = static_cast<CallerRole>(i);
    if (roles.Has(role)) out += StrCat(out.empty() ? "" : ", ", CallerRoleName(role));
  }
  return out;
}

std::string RoleUri(CallerRole role, std::string_view tenant) {
  CHECK(role != CallerRole::kAnonymous);
  if (role != CallerRole::kClient) return StrCat(kScheme, CallerRoleName(role));
  return StrCat(kScheme, kClientPrefix, PercentEncoded(tenant));
}

Caller CallerOfUris(std::span<const std::string> uris) {
  Caller caller;
  for (const std::string& uri : uris) {
    if (!uri.starts_with(kScheme)) continue;
    const std::string_view name = std::string_view(uri).substr(kScheme.size());
    if (name.starts_with(kClientPrefix)) {
      std::optional<std::string> tenant = DecodedTenant(name.substr(kClientPrefix.size()));
      if (!tenant.has_value() || caller.tenant.has_value()) return {};
      caller.tenant = std::move(tenant);
      caller.roles.Add(CallerRole::kClient);
      continue;
    }
    for (const CallerRole role :
         {CallerRole::kOperator, CallerRole::kRouter, CallerRole::kWorker}) {
      if (name == CallerRoleName(role)) caller.roles.Add(role);
    }
  }
  return caller;
}

absl::Status TakeTenant(const Caller& caller, std::string& tenant) {
  if (!caller.tenant.has_value() || tenant == *caller.tenant) return absl::OkStatus();
  if (tenant.empty()) {
    tenant = *caller.tenant;
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(
      StrCat("tenant is \"", Printable(tenant.substr(0, kMaxTenantBytes)),
             "\", but the caller's key or certificate has another tenant. Leave the field out"));
}

}  // namespace baton
