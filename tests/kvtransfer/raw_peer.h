// Test-controlled end of a TCP connection that sends and receives frames, valid or not.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <optional>
#include <string>

#include "gtest/gtest.h"
#include "kvtransfer/protocol/transfer_frame.h"
#include "kvtransfer/sockets/tcp_socket.h"
#include "tests/kvtransfer/transfer_test_worker.h"

namespace baton {

class RawPeer {
 public:
  // Connects to a transport's address.
  explicit RawPeer(const std::string& address) {
    const SocketAddress target = *ParseTcpAddress(address);
    fd_ = FileDescriptor(socket(target.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(connect(fd_.get(), reinterpret_cast<const sockaddr*>(&target.storage), target.length),
              0);
  }
  explicit RawPeer(FileDescriptor fd) : fd_(std::move(fd)) {}

  void SendBytes(const std::string& bytes) {
    for (size_t at = 0; at < bytes.size();) {
      const ssize_t sent = send(fd_.get(), bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
      if (sent <= 0) return;  // the other side closed; tests check that with Closed()
      at += sent;
    }
  }
  void Send(const Frame& frame) { SendBytes(EncodeFrame(frame)); }
  void Hello(const TestShape& shape = {}) {
    Send(HelloFrame{.fingerprint = MakeFingerprint(shape), .epoch = Epoch(1), .node = "raw"});
    const auto reply = Read<HelloReplyFrame>();
    ASSERT_TRUE(reply.has_value());
    EXPECT_TRUE(reply->accepted) << reply->reason;
  }

  // Returns the next frame of this type and skips others. Returns nothing if the connection ends or
  // no byte comes for `wait_ms`.
  template <typename T>
  std::optional<T> Read(int wait_ms = 10'000) {
    while (true) {
      std::string header_bytes;
      if (!ReadBytes(kFrameHeaderBytes, header_bytes, wait_ms)) return std::nullopt;
      const auto header = DecodeFrameHeader(AsBytes(header_bytes));
      EXPECT_TRUE(header.ok()) << header.status();
      std::string body;
      if (!header.ok() || !ReadBytes(header->body_bytes, body)) return std::nullopt;
      const auto frame = DecodeFrameBody(*header, AsBytes(body));
      EXPECT_TRUE(frame.ok()) << frame.status();
      if (!frame.ok()) return std::nullopt;
      if (const T* wanted = std::get_if<T>(&*frame)) return *wanted;
    }
  }
  bool ReadBytes(size_t count, std::string& bytes, int wait_ms = 10'000) {
    bytes.resize(count);
    for (size_t at = 0; at < count;) {
      pollfd wait{fd_.get(), POLLIN, 0};
      if (poll(&wait, 1, wait_ms) <= 0) return false;
      const ssize_t got = recv(fd_.get(), bytes.data() + at, count - at, 0);
      if (got <= 0) return false;
      at += got;
    }
    return true;
  }
  // Waits until the other side closes. Discards everything before that.
  bool Closed() {
    char scrap[4096];
    while (true) {
      pollfd wait{fd_.get(), POLLIN, 0};
      if (poll(&wait, 1, 10'000) <= 0) return false;
      if (recv(fd_.get(), scrap, sizeof(scrap), 0) <= 0) return true;
    }
  }
  void Close() { fd_ = FileDescriptor(); }
  // Closes with a reset instead of an end of stream.
  void Reset() {
    const linger now{1, 0};
    setsockopt(fd_.get(), SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    Close();
  }

 private:
  static std::span<const std::byte> AsBytes(const std::string& s) {
    return std::as_bytes(std::span(s.data(), s.size()));
  }

  FileDescriptor fd_;
};

}  // namespace baton
