#include "kvtransfer/sockets/unix_socket.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace baton {
namespace {

constexpr char kShmScheme[] = "shm:";
constexpr char kPrefix[] = "baton-kv/";

absl::Status Failed(const std::string& what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno)));
}

struct UnixAddress {
  sockaddr_un socket{};
  socklen_t length = 0;
  const sockaddr* raw() const { return reinterpret_cast<const sockaddr*>(&socket); }
};

// REQUIRES: a name of at most kMaxShmNameBytes bytes.
UnixAddress Abstract(const std::string& name) {
  UnixAddress address;
  address.socket.sun_family = AF_UNIX;
  const std::string path = absl::StrCat(kPrefix, name);
  std::memcpy(address.socket.sun_path + 1, path.data(), path.size());  // after a zero byte
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + path.size());
  return address;
}

FileDescriptor NewSocket() {
  return FileDescriptor(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

}  // namespace

absl::StatusOr<std::string> ParseShmAddress(const std::string& address) {
  if (!address.starts_with(kShmScheme)) {
    return absl::InvalidArgumentError(
        absl::StrCat("address \"", address, "\" does not start with ", kShmScheme));
  }
  std::string name = address.substr(sizeof(kShmScheme) - 1);
  const bool plain = std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.';
  });
  if (name.empty() || name.size() > kMaxShmNameBytes || !plain) {
    return absl::InvalidArgumentError(absl::StrCat("address \"", address,
                                                   "\": its name is not 1 to ", kMaxShmNameBytes,
                                                   " letters, digits, '-', '_' or '.'"));
  }
  return name;
}

std::string FormatShmAddress(const std::string& name) { return absl::StrCat(kShmScheme, name); }

absl::StatusOr<FileDescriptor> ListenUnix(const std::string& name) {
  FileDescriptor listener = NewSocket();
  if (listener.get() < 0) return Failed("socket");
  const UnixAddress address = Abstract(name);
  if (bind(listener.get(), address.raw(), address.length) != 0) {
    if (errno == EADDRINUSE) {
      return absl::AlreadyExistsError(absl::StrCat(FormatShmAddress(name), " is already in use"));
    }
    return Failed(absl::StrCat("bind to ", FormatShmAddress(name)));
  }
  if (listen(listener.get(), SOMAXCONN) != 0) return Failed("listen");
  return listener;
}

absl::StatusOr<std::optional<FileDescriptor>> AcceptUnix(const FileDescriptor& listener) {
  FileDescriptor accepted(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (accepted.get() >= 0) return std::optional<FileDescriptor>(std::move(accepted));
  if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
    return absl::ResourceExhaustedError(absl::StrCat("accept: ", std::strerror(errno)));
  }
  return std::optional<FileDescriptor>();
}

absl::StatusOr<FileDescriptor> ConnectUnix(const std::string& name) {
  FileDescriptor connected = NewSocket();
  if (connected.get() < 0) return Failed("socket");
  const UnixAddress address = Abstract(name);
  if (connect(connected.get(), address.raw(), address.length) != 0) {
    return Failed(absl::StrCat("connect to ", FormatShmAddress(name)));
  }
  return connected;
}

absl::Status CheckSameUser(const FileDescriptor& socket) {
  ucred peer{};
  socklen_t length = sizeof(peer);
  if (getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
    return Failed("SO_PEERCRED");
  }
  if (peer.uid == geteuid()) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("the peer runs as user ", peer.uid, ", this process as user ", geteuid()));
}

ssize_t SendWithFiles(int socket, std::span<iovec> buffers, std::span<const int> files) {
  if (files.empty() && buffers.size() == 1) {  // a quarter cheaper than sendmsg
    return send(socket, buffers[0].iov_base, buffers[0].iov_len, MSG_NOSIGNAL);
  }
  msghdr message{};
  message.msg_iov = buffers.data();
  message.msg_iovlen = buffers.size();
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxFilesAtOnce * sizeof(int))] = {};
  if (!files.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(files.size_bytes());
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(files.size_bytes());
    std::memcpy(CMSG_DATA(header), files.data(), files.size_bytes());
  }
  return sendmsg(socket, &message, MSG_NOSIGNAL);
}

ssize_t ReceiveWithFiles(int socket, std::span<std::byte> buffer,
                         std::vector<FileDescriptor>& files) {
  iovec into{buffer.data(), buffer.size()};
  msghdr message{};
  message.msg_iov = &into;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxFilesAtOnce * sizeof(int))];
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  if (got < 0) return got;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int file;
      std::memcpy(&file, CMSG_DATA(header) + i * sizeof(int), sizeof(file));
      files.emplace_back(file);
    }
  }
  if ((message.msg_flags & MSG_CTRUNC) != 0) {
    errno = EMSGSIZE;
    return -1;
  }
  return got;
}

}  // namespace baton
