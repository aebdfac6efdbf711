#include "loadtest/target_address.h"

#include <string_view>

#include "common/printable_text.h"
#include "common/status_macros.h"
#include "common/str_cat.h"

namespace baton {
namespace {

constexpr std::string_view kGrpcScheme = "grpc://";
constexpr std::string_view kHttpScheme = "http://";
constexpr std::string_view kHttpsScheme = "https://";

// Paths go into a request line, so they must have no blanks and no control characters.
bool IsPath(std::string_view path) {
  for (const char c : path) {
    if (c <= ' ' || c == 0x7F || c == '#' || c == '?') return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<TargetAddress> ParseTargetAddress(const std::string& text) {
  TargetAddress out;
  std::string rest;
  if (text.starts_with(kGrpcScheme)) {
    rest = text.substr(kGrpcScheme.size());
  } else if (text.starts_with(kHttpScheme) || text.starts_with(kHttpsScheme)) {
    out.is_http = true;
    out.is_https = text.starts_with(kHttpsScheme);
    rest = text.substr((out.is_https ? kHttpsScheme : kHttpScheme).size());
    const size_t slash = rest.find('/');
    if (slash != std::string::npos) {
      out.path = rest.substr(slash);
      rest.resize(slash);
    }
    while (out.path.ends_with('/')) out.path.pop_back();
    const size_t bracket = rest.rfind(']');
    const bool has_port =
        rest.find(':', bracket == std::string::npos ? 0 : bracket) != std::string::npos;
    if (!rest.empty() && !has_port) rest += out.is_https ? ":443" : ":80";
  }
  if (rest.empty() || !IsPath(out.path)) {
    return absl::InvalidArgumentError(
        StrCat("is \"", Printable(text),
               "\"; must be grpc://HOST:PORT or http://HOST:PORT/v1 (or https)"));
  }
  RETURN_IF_ERROR(CheckHostPort(rest));
  ASSIGN_OR_RETURN(out.host_port, ParseHostPort(rest));
  return out;
}

}  // namespace baton
