// A port that other machines reach needs TLS, unless the operator declares the network trusted.
//
// Thread safety: functions may be called from any thread. They may block on name resolution.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace baton {

// Returns true if `host` is a loopback address, or a name of which all addresses are.
bool IsLoopbackHost(const std::string& host);

// InvalidArgument if `listen` (HOST:PORT, or empty: off) is reachable from other machines. `option`
// is the option of `listen`, `encrypt_with` names the options that turn TLS on.
absl::Status CheckPlaintextListen(std::string_view option, const std::string& listen,
                                  std::string_view encrypt_with);

}  // namespace baton
