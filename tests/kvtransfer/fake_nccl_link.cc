#include "tests/kvtransfer/fake_nccl_link.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace baton {
namespace {

constexpr size_t kNameBytes = 64;  // of the unique id

struct Address {
  explicit Address(const NcclUniqueId& id) {
    socket_address.sun_family = AF_UNIX;
    // An abstract address: the first byte of the name is zero.
    std::memcpy(socket_address.sun_path + 1, id.internal, kNameBytes);
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&socket_address); }

  sockaddr_un socket_address = {};
  const socklen_t length = offsetof(sockaddr_un, sun_path) + 1 + kNameBytes;
};

FileDescriptor NewSocket() {
  return FileDescriptor(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

}  // namespace

FakeNcclLink::FakeNcclLink(int rank, const NcclUniqueId& id) : rank_(rank), id_(id) {
  if (rank != 0) return;
  const Address address(id);
  FileDescriptor made = NewSocket();
  const bool listens =
      bind(made.get(), address.get(), address.length) == 0 && listen(made.get(), 1) == 0;
  if (listens) listener_ = std::move(made);
}

FakeNcclLink::Progress FakeNcclLink::Meet() {
  if (rank_ == 0) {
    if (listener_.get() < 0) return Progress::kBroken;
    socket_ =
        FileDescriptor(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket_.get() < 0) return Progress::kNotYet;
    listener_ = FileDescriptor();
    return Progress::kDone;
  }
  const Address address(id_);
  FileDescriptor made = NewSocket();
  if (connect(made.get(), address.get(), address.length) != 0) return Progress::kNotYet;
  socket_ = std::move(made);
  return Progress::kDone;
}

FakeNcclLink::Progress FakeNcclLink::Move(std::span<std::byte>& bytes) {
  while (!bytes.empty()) {
    const ssize_t moved = rank_ == 0 ? send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL)
                                     : recv(socket_.get(), bytes.data(), bytes.size(), 0);
    if (moved < 0 && errno == EINTR) continue;
    if (moved < 0 && errno == EAGAIN) return Progress::kNotYet;
    if (moved <= 0) return Progress::kBroken;
    bytes = bytes.subspan(static_cast<size_t>(moved));
  }
  return Progress::kDone;
}

}  // namespace baton
