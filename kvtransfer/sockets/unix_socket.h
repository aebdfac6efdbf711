// Non-blocking sockets between processes of one host, which carry file descriptors and say who the
// other side is.
//
// Addresses are "shm:NAME"; the socket's name is abstract (in no file system), so it is gone with
// its process, and it is seen within one network namespace only: who can connect can share memory.
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

// The name in "shm:NAME". InvalidArgument unless it has 1 to kMaxShmNameBytes letters, digits, '-',
// '_' or '.'.
absl::StatusOr<std::string> ParseShmAddress(const std::string& address);
std::string FormatShmAddress(const std::string& name);

// AlreadyExists when the name is taken.
absl::StatusOr<FileDescriptor> ListenUnix(const std::string& name);
// Nothing when no connection waits. ResourceExhausted when the process has no descriptor left.
absl::StatusOr<std::optional<FileDescriptor>> AcceptUnix(const FileDescriptor& listener);
// Connected at once. Unavailable when nobody listens or too many wait.
absl::StatusOr<FileDescriptor> ConnectUnix(const std::string& name);
// PermissionDenied when the other side runs as another user.
absl::Status CheckSameUser(const FileDescriptor& socket);

// As sendmsg; the descriptors go with the first byte.
ssize_t SendWithFiles(int socket, std::span<iovec> buffers, std::span<const int> files);
// As recvmsg; descriptors that came along are appended to `files`. More than kMaxFilesAtOnce at
// once is an error (EMSGSIZE).
inline constexpr size_t kMaxFilesAtOnce = 2;
ssize_t ReceiveWithFiles(int socket, std::span<std::byte> buffer,
                         std::vector<FileDescriptor>& files);

}  // namespace baton
