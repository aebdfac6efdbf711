// Production's TCP connection with a simulated stream in place of its socket. Two mutants
// (mutants.h) live here: receivers that put blocks in the wrong place.
#pragma once

#include <cerrno>
#include <memory>
#include <optional>
#include <utility>

#include "kvtransfer/sockets/tcp_connection.h"
#include "tests/sim/mutants.h"
#include "tests/sim/sim_stream.h"

namespace baton {

class StreamedConnection final : public TcpConnection {
 public:
  StreamedConnection(ConnectionParts parts, std::unique_ptr<SimSocket> stream, Mutant mutant)
      : TcpConnection(std::move(parts)), stream_(std::move(stream)), mutant_(mutant) {}

  SimSocket& stream() const { return *stream_; }

 protected:
  absl::Status ConnectOutcome() const override { return stream_->ConnectResult(); }
  ssize_t ReadSome(std::span<iovec> buffers) override {
    return AsSystemCall(stream_->Read(buffers));
  }
  ssize_t WriteSome(std::span<iovec> buffers) override {
    return AsSystemCall(stream_->Write(buffers));
  }

  absl::Status OnPayloadFrame(Frame frame, int64_t now_us) override {
    auto* block = std::get_if<BlockFrame>(&frame);
    const bool misplaces =
        mutant_ == Mutant::kReshapeBySendersBlocks || mutant_ == Mutant::kSliceAtFirstLayer;
    if (!misplaces || block == nullptr) {
      return TcpConnection::OnPayloadFrame(std::move(frame), now_us);
    }
    std::optional<BlockPlacement> placement = node_.receiver().OnBlock(peer(), *block);
    if (!placement) {
      StartPayload(BlockLanding(block->payload_bytes), now_us);
      return absl::OkStatus();
    }
    if (mutant_ == Mutant::kReshapeBySendersBlocks) {
      for (LandingPart& part : placement->parts) {
        part.block_token %= sender_geometry().block_size;
      }
    } else {
      block->layers.first = 0;
    }
    Land(*std::move(placement), std::move(*block), now_us);
    return absl::OkStatus();
  }

 private:
  static ssize_t AsSystemCall(const absl::StatusOr<int64_t>& moved) {
    if (moved.ok() && *moved > 0) return *moved;
    errno = moved.ok() ? EAGAIN : ECONNRESET;
    return -1;
  }

  const std::unique_ptr<SimSocket> stream_;
  const Mutant mutant_;
};

}  // namespace baton
