// A folder with certificates for tests, removed at the end.
//
// Thread safety: belongs to one thread.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

#include "security/tls_files.h"
#include "security/trial_certificates.h"

namespace baton {

class TrialSet {
 public:
  explicit TrialSet(const std::string& tenant = "") {
    std::string pattern = (std::filesystem::temp_directory_path() / "baton-trial-XXXXXX").string();
    EXPECT_NE(mkdtemp(pattern.data()), nullptr);
    options_.directory = pattern;
    if (!tenant.empty()) options_.tenant = tenant;
    const absl::Status made = MakeTrialCertificates(options_);
    EXPECT_TRUE(made.ok()) << made;
  }
  ~TrialSet() {
    std::error_code ignored;
    std::filesystem::remove_all(options_.directory, ignored);
  }
  TrialSet(const TrialSet&) = delete;
  TrialSet& operator=(const TrialSet&) = delete;

  // New keys and certificates of the same authority.
  void Renew() const {
    const absl::Status made = RenewTrialCertificates(options_);
    EXPECT_TRUE(made.ok()) << made;
  }

  const std::string& directory() const { return options_.directory; }
  std::string Path(const std::string& name) const { return options_.directory + "/" + name; }
  // `role`: "router", "worker", "operator" or "client"; empty: no certificate.
  TlsFiles Files(const std::string& role) const {
    return {.certificate = role.empty() ? "" : Path(role + ".pem"),
            .key = "",
            .authorities = Path("ca.crt")};
  }

 private:
  TrialCertificateOptions options_;
};

}  // namespace baton
