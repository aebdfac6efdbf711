// Names of the files with a process's certificate, its key, and the authorities that it trusts. All
// are in PEM form.
//
// The files may be replaced while processes run: new handshakes use them within ten seconds.
// Replace a file by renaming a new one over it. A certificate and its key change together if both
// are in one file, or in a folder that a symbolic link names and that is replaced as a whole.
//
// Thread safety: plain data and pure functions.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "common/settings.h"

namespace baton {

struct TlsFiles {
  std::string certificate = {};  // followed by those of intermediate authorities, if there are any
  std::string key = {};          // empty: it is in the file of the certificate
  std::string authorities = {};

  // True if one of the files is named.
  bool any() const { return !certificate.empty() || !key.empty() || !authorities.empty(); }
  const std::string& key_file() const { return key.empty() ? certificate : key; }
};

// --tls-cert, --tls-key and --tls-ca of a process of the fleet.
void RegisterSettings(TlsFiles& files, SettingList& settings);

// Checks the files of a process of the fleet, which needs a certificate and an authority. OK if
// none is named. Otherwise NotFound or InvalidArgument with the option, the file and the reason.
absl::Status CheckFleetTls(const TlsFiles& files);

}  // namespace baton
