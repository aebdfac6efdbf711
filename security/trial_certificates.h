// Makes certificates for a trial: an authority of its own, and a certificate for each role. For
// production, an authority with a protected key belongs in its place.
//
//   ca.crt, ca.key   the authority
//   router.pem, worker.pem, operator.pem, client.pem   a key and its certificate, in one file
//
// Thread safety: pure functions; two calls must not use one folder at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace baton {

struct TrialCertificateOptions {
  std::string directory = {};
  // DNS names and IP addresses at which clients reach routers. Absent: localhost, 127.0.0.1 and
  // ::1; of a renewal, those of the present certificate.
  std::optional<std::vector<std::string>> router_names = {};
  // Of the client's certificate. Absent: none; of a renewal, that of the present certificate.
  std::optional<std::string> tenant = {};
  int32_t days = 30;
};

// Creates the folder if there is none. AlreadyExists: it has one of the files. InvalidArgument: a
// name cannot be in a certificate. Unavailable: a file cannot be written.
absl::Status MakeTrialCertificates(const TrialCertificateOptions& options);

// Makes new keys and certificates, signed by the folder's authority, and renames them over the old
// ones. NotFound: there is no authority, or no certificate whose names are to be kept.
absl::Status RenewTrialCertificates(const TrialCertificateOptions& options);

}  // namespace baton
