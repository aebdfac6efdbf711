#include "common/host_port.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace baton {
namespace {

std::string WithoutBrackets(const std::string& host) {
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  return bracketed ? host.substr(1, host.size() - 2) : host;
}

}  // namespace

absl::StatusOr<HostPort> ParseHostPort(const std::string& text) {
  if (const size_t scheme = text.find("://"); scheme != std::string::npos) {
    const size_t host = std::min(text.find_first_not_of('/', scheme + 3), text.size());
    const std::string rest = text.substr(host);
    return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" is not HOST:PORT: leave out ",
                                                   text.substr(0, host), ", as in ",
                                                   rest.substr(0, rest.find('/'))));
  }
  const size_t colon = text.rfind(':');
  HostPort out;
  if (colon == std::string::npos || colon == 0 ||
      !absl::SimpleAtoi(text.substr(colon + 1), &out.port) || out.port < 0 || out.port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\" is not HOST:PORT with a port of 0 to 65535"));
  }
  const std::string host = text.substr(0, colon);
  out.host = WithoutBrackets(host);
  if (out.host == host && host.find_first_of(":[]") != std::string::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text,
                     "\" is not HOST:PORT: an IPv6 address before a port needs brackets, as in "
                     "[::1]:8090"));
  }
  return out;
}

absl::Status CheckHostPort(const std::string& text) {
  const absl::StatusOr<HostPort> parsed = ParseHostPort(text);
  if (!parsed.ok() || parsed->port > 0) return parsed.status();
  return absl::InvalidArgumentError(
      absl::StrCat("\"", text, "\" is not HOST:PORT with a port of 1 to 65535"));
}

std::string JoinHostPort(const std::string& host, int32_t port) {
  const bool bare_ipv6 = host.find(':') != std::string::npos && host.front() != '[';
  return absl::StrCat(bare_ipv6 ? "[" : "", host, bare_ipv6 ? "]" : "", ":", port);
}

HostPort AdvertisedHostPort(const std::string& text, int32_t port) {
  absl::StatusOr<HostPort> named = ParseHostPort(text);
  if (!named.ok()) return {.host = WithoutBrackets(text), .port = port};
  return *std::move(named);
}

bool IsWildcardHost(const std::string& host) { return host == "0.0.0.0" || host == "::"; }

}  // namespace baton
