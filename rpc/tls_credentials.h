// gRPC credentials from the files of a process (security/tls_files.h). gRPC reads the files again
// every few seconds; new handshakes then use them.
//
// gRPC 1.51 cannot set a minimum version, so these ports also accept TLS 1.2.
//
// Thread safety: functions may be called from any thread. Credentials may be shared by channels.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>

#include "security/caller.h"
#include "security/tls_files.h"

namespace baton {

// Credentials of a server. Each call is checked against the access table (rpc/rpc_access.h).
// Insecure if no file is named. `anonymous`: clients need no certificate. REQUIRES: CheckFleetTls.
std::shared_ptr<grpc::ServerCredentials> ServerCredentialsOf(const TlsFiles& files, bool anonymous);

// For channels to a process of the fleet. They check the chain of the server's certificate and its
// role, not its name: workers move. Insecure if no file is named. REQUIRES: CheckFleetTls.
std::shared_ptr<grpc::ChannelCredentials> FleetCredentials(const TlsFiles& files, CallerRole role);

// For channels to a router. They check the chain and the name of the server's certificate. Insecure
// if no file is named. REQUIRES: with files, one of authorities.
std::shared_ptr<grpc::ChannelCredentials> ClientCredentials(const TlsFiles& files);

// For channels to a server outside the fleet: the same, but always with TLS. Without
// files.authorities, the system's authorities count.
std::shared_ptr<grpc::ChannelCredentials> VerifyingCredentials(const TlsFiles& files);

}  // namespace baton
