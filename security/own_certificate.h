// Looks at a process's own certificate as its peers will. A process starts with a certificate that
// all peers refuse, because it cannot know their files; so it warns.
//
// Thread safety: pure function.
#pragma once

#include <string>
#include <vector>

#include "security/caller.h"
#include "security/tls_files.h"

namespace baton {

// Returns a sentence for each reason for which peers may refuse the certificate: it lacks the role,
// or no authority of this process has signed it. Empty without certificate. REQUIRES:
// CheckFleetTls(files) is OK.
std::vector<std::string> OwnCertificateWarnings(const TlsFiles& files, CallerRole role);

}  // namespace baton
