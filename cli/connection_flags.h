// Flags with which client commands connect to an encrypted service: --tls-ca, --tls-cert, --tls-key
// and --api-key-file.
//
// Thread safety: belongs to one thread.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "common/command_line.h"
#include "security/tls_files.h"

namespace baton {

struct ConnectionFlags {
  TlsFiles tls = {};
  std::string api_key_file = {};
};

void AddConnectionFlags(CommandLine& command, ConnectionFlags* flags);

// Checks that the flags fit together, and the files. OK without flags. InvalidArgument or NotFound
// names the flag or the file.
absl::Status CheckConnectionFlags(const ConnectionFlags& flags);

// Returns the key in the file of --api-key-file: its first line, without blanks around it. Empty
// without a file. NotFound: it cannot be read. InvalidArgument: it has no key, a longer one than
// kMaxApiKeyBytes, or one with other bytes than visible ASCII characters.
absl::StatusOr<std::string> ReadApiKey(const ConnectionFlags& flags);

}  // namespace baton
