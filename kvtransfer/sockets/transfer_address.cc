#include "kvtransfer/sockets/transfer_address.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/host_port.h"
#include "common/status_macros.h"
#include "kvtransfer/sockets/unix_socket.h"

namespace baton {

bool IsShmAddress(const std::string& address) { return address.starts_with("shm:"); }

absl::StatusOr<std::vector<std::string>> UsableAddresses(const std::string& addresses, bool tcp,
                                                         bool shm) {
  // Before anything is parsed: a ticket comes from anybody.
  if (addresses.size() > kMaxAddressBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("address has ", addresses.size(), " bytes, at most ", kMaxAddressBytes));
  }
  const std::vector<std::string> all = absl::StrSplit(addresses, ',');
  if (all.size() > kMaxAddresses) {
    return absl::InvalidArgumentError(
        absl::StrCat("address has ", all.size(), " ways to the receiver, at most ", kMaxAddresses));
  }
  std::vector<std::string> usable;
  for (const std::string& address : all) {
    const bool is_shm = IsShmAddress(address);
    RETURN_IF_ERROR(is_shm ? ParseShmAddress(address).status() : ParseTcpAddress(address).status());
    if (is_shm ? shm : tcp) usable.push_back(address);
  }
  if (usable.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("address \"", addresses, "\" has no way for ",
                                                   shm ? "shared memory" : "TCP", " alone"));
  }
  return usable;
}

absl::StatusOr<FileDescriptor> StartConnect(const std::string& address) {
  if (!IsShmAddress(address)) {
    ASSIGN_OR_RETURN(const SocketAddress target, ParseTcpAddress(address));
    return StartConnectTcp(target);
  }
  ASSIGN_OR_RETURN(const std::string name, ParseShmAddress(address));
  ASSIGN_OR_RETURN(FileDescriptor socket, ConnectUnix(name));
  RETURN_IF_ERROR(CheckSameUser(socket));
  return socket;
}

absl::StatusOr<SocketAddress> AdvertisedAddress(const FileDescriptor& listener,
                                                const std::string& advertised) {
  ASSIGN_OR_RETURN(SocketAddress address, LocalAddress(listener));
  if (!advertised.empty()) {
    const HostPort where = AdvertisedHostPort(advertised, address.port());
    ASSIGN_OR_RETURN(address, ResolveHost(where.host, static_cast<uint16_t>(where.port)));
  }
  if (IsWildcard(address)) {
    return absl::InvalidArgumentError(
        absl::StrCat("nobody can connect to ", address.host(), ": name an advertise_host"));
  }
  return address;
}

}  // namespace baton
