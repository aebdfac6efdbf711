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
  // Checked before anything is parsed, because a ticket is untrusted.
  if (addresses.size() > kMaxAddressBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("address has ", addresses.size(), " bytes, the limit is ", kMaxAddressBytes));
  }
  const std::vector<std::string> all = absl::StrSplit(addresses, ',');
  if (all.size() > kMaxAddresses) {
    return absl::InvalidArgumentError(absl::StrCat(
        "address has ", all.size(), " ways to the receiver, the limit is ", kMaxAddresses));
  }
  std::vector<std::string> usable;
  for (const std::string& address : all) {
    const bool is_shm = IsShmAddress(address);
    RETURN_IF_ERROR(is_shm ? ParseShmAddress(address).status() : ParseTcpAddress(address).status());
    if (is_shm ? shm : tcp) usable.push_back(address);
  }
  if (usable.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("address \"", addresses,
                                                   "\" has no way that works with ",
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
        absl::StrCat("peers cannot connect to ", address.host(), ": set advertise_host"));
  }
  return address;
}

}  // namespace baton
