// Production's TCP connection over a simulated stream in the place of its socket.
#pragma once

#include <cerrno>
#include <memory>
#include <utility>

#include "kvtransfer/tcp_connection.h"
#include "tests/sim/byte_stream.h"

namespace baton {

class StreamedConnection final : public TcpConnection {
 public:
  StreamedConnection(ConnectionParts parts, std::unique_ptr<ByteStream> stream)
      : TcpConnection(std::move(parts)), stream_(std::move(stream)) {}

  ByteStream& stream() const { return *stream_; }

 protected:
  absl::Status ConnectOutcome() const override { return stream_->ConnectResult(); }
  ssize_t ReadSome(std::span<iovec> buffers) override {
    return AsSystemCall(stream_->Read(buffers));
  }
  ssize_t WriteSome(std::span<iovec> buffers) override {
    return AsSystemCall(stream_->Write(buffers));
  }

 private:
  static ssize_t AsSystemCall(const absl::StatusOr<int64_t>& moved) {
    if (moved.ok() && *moved > 0) return *moved;
    errno = moved.ok() ? EAGAIN : ECONNRESET;
    return -1;
  }

  const std::unique_ptr<ByteStream> stream_;
};

}  // namespace baton
