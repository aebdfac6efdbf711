// TLS for transfer_bench: certificates for the run, and OpenSSL's own speed.
//
// Thread safety: belongs to one thread.
#pragma once

#include <stdlib.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "bench/transfer_worker.h"
#include "common/check.h"
#include "kvtransfer/sockets/create_socket_transport.h"
#include "security/tls_files.h"
#include "security/trial_certificates.h"

namespace baton {

// Certificates in a folder that is removed at the end.
class BenchCertificates {
 public:
  BenchCertificates() {
    CHECK(mkdtemp(directory_.data()) != nullptr);
    const absl::Status made = MakeTrialCertificates({.directory = directory_});
    CHECK(made.ok()) << made;
  }
  ~BenchCertificates() {
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }
  TlsFiles OfWorker() const {
    return {.certificate = directory_ + "/worker.pem",
            .key = "",
            .authorities = directory_ + "/ca.crt"};
  }

 private:
  std::string directory_ =
      (std::filesystem::temp_directory_path() / "transfer-bench-XXXXXX").string();
};

inline MakeTransport TcpWithTls(const TlsFiles& files) {
  return [files](TransportOptions options) {
    return CreateSocketTransport(
        {.tcp_listen = "127.0.0.1:0", .tcp_advertise_host = "", .shm_name = "", .tls = files},
        std::move(options));
  };
}

// Bytes per second that one thread encrypts with the cipher of the connections, as `openssl speed`
// measures it for records of 16 KiB. NotFound: it is not installed.
inline absl::StatusOr<double> OpensslBytesPerSecond() {
  FILE* const pipe =
      popen("openssl speed -mr -seconds 1 -bytes 16384 -evp aes-128-gcm 2>/dev/null", "r");
  if (pipe == nullptr) return absl::InternalError("openssl cannot be started");
  double rate = 0;
  char line[256];
  while (std::fgets(line, sizeof(line), pipe) != nullptr) {
    // "+F:22:AES-128-GCM:4321000000.00"
    const std::string text(line);
    if (text.rfind("+F:", 0) == 0) rate = std::atof(text.substr(text.rfind(':') + 1).c_str());
  }
  pclose(pipe);
  if (rate <= 0) return absl::NotFoundError("openssl is not installed (apt-get install openssl)");
  return rate;
}

}  // namespace baton
