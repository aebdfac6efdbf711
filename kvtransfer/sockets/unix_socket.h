// Non-blocking sockets between processes of one host. They carry file descriptors and identify the
// user of the peer.
//
// Addresses are "shm:NAME". The socket's name is abstract, that is, in no file system. So it
// disappears with its process, and is visible only within one network namespace. A process that can
// connect can therefore also share memory.
//
// Thread safety: functions are safe from any thread.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/file_descriptor.h"

namespace baton {

inline constexpr size_t kMaxShmNameBytes = 64;

// Returns the name in "shm:NAME". InvalidArgument unless it has 1 to kMaxShmNameBytes letters,
// digits, '-', '_' or '.'.
absl::StatusOr<std::string> ParseShmAddress(const std::string& address);
std::string FormatShmAddress(const std::string& name);

// AlreadyExists if the name is in use.
absl::StatusOr<FileDescriptor> ListenUnix(const std::string& name);
// Returns nothing if no connection waits. ResourceExhausted if the process has no descriptor left.
absl::StatusOr<std::optional<FileDescriptor>> AcceptUnix(const FileDescriptor& listener);
// Connects at once. Unavailable if no process listens or too many connections wait.
absl::StatusOr<FileDescriptor> ConnectUnix(const std::string& name);
// PermissionDenied if the peer runs as another user.
absl::Status CheckSameUser(const FileDescriptor& socket);

// As sendmsg. The descriptors go with the first byte.
ssize_t SendWithFiles(int socket, std::span<iovec> buffers, std::span<const int> files);
// As recvmsg. Appends the received descriptors to `files`. More than kMaxFilesAtOnce in one message
// is an error (EMSGSIZE).
inline constexpr size_t kMaxFilesAtOnce = 2;
ssize_t ReceiveWithFiles(int socket, std::span<std::byte> buffer,
                         std::vector<FileDescriptor>& files);

}  // namespace baton
