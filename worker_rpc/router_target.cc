#include "worker_rpc/router_target.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/host_port.h"
#include "common/status_macros.h"

namespace baton {
namespace {

constexpr std::string_view kByName = "dns:///";

}  // namespace

absl::StatusOr<RouterTarget> ParseRouterTarget(const std::string& text) {
  const bool by_name = text.starts_with(kByName);
  const std::string address = by_name ? text.substr(kByName.size()) : text;
  if (address.find('/') != std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", text, "\" is not an address of routers; use HOST:PORT or dns:///NAME:PORT"));
  }
  RETURN_IF_ERROR(CheckHostPort(address));
  ASSIGN_OR_RETURN(HostPort where, ParseHostPort(address));
  return RouterTarget{.host = std::move(where.host), .port = where.port, .by_name = by_name};
}

RouterAddresses::RouterAddresses(std::vector<RouterTarget> targets) {
  for (RouterTarget& target : targets) {
    std::vector<std::string> hosts;
    if (target.by_name) {
      names_.push_back(target.host);
    } else {
      hosts.push_back(target.host);
    }
    entries_.push_back({std::move(target), std::move(hosts)});
  }
}

void RouterAddresses::OnResolved(size_t name,
                                 const absl::StatusOr<std::vector<std::string>>& hosts) {
  if (!hosts.ok()) return;
  size_t index = 0;
  for (Entry& entry : entries_) {
    if (entry.target.by_name && index++ == name) entry.hosts = *hosts;
  }
}

std::vector<std::string> RouterAddresses::All() const {
  std::vector<std::string> out;
  for (const Entry& entry : entries_) {
    for (const std::string& host : entry.hosts) {
      out.push_back(JoinHostPort(host, entry.target.port));
    }
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

}  // namespace baton
