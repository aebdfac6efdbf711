// Connection between two processes of one host. Frames travel over a Unix socket; block payloads do
// not travel at all. The sender passes its pool's file in the handshake and tells the place of each
// block. The receiver copies each block from that place and verifies it (shared_pool.h).
//
// After HelloReply the sender sends SharedPool with two descriptors: its pool, and the generations
// of its blocks. Pulls are implied: a SharedBlock follows every block's announcement at once. A
// waiting SharedBlock only costs the sender a few bytes in its socket's buffer.
//
// Thread safety: belongs to the I/O thread.
#pragma once

#include <optional>
#include <vector>

#include "kvtransfer/shm/shared_pool.h"
#include "kvtransfer/sockets/stream_connection.h"

namespace baton {

class ShmConnection final : public StreamConnection {
 public:
  // `lent` belongs to the transport and outlives this.
  ShmConnection(ConnectionParts parts, LentBlocks& lent)
      : StreamConnection(std::move(parts)), lent_(lent) {}

  // Nothing to release: a copy ends within the call that began it, and the transport ends the
  // loans.
  void ReleaseEndedTransfers() override {}
  bool HasUnread() const override { return read_ < arrived_; }
  bool AnswersAtOnce() const override { return true; }

 protected:
  PullMode pulls() const override { return PullMode::kImplied; }
  bool SharesClock() const override { return true; }
  ssize_t ReadSome(std::span<iovec> buffers) override;
  ssize_t WriteSome(std::span<iovec> buffers) override;
  absl::Status OnAccepted() override;
  absl::Status OnPayloadFrame(Frame frame, int64_t now_us) override;
  absl::Status QueueBlocks(int64_t now_us) override;

 private:
  absl::Status OnSharedPool(const SharedPoolFrame& frame);
  absl::Status OnSharedBlock(const SharedBlockFrame& frame, int64_t now_us);

  LentBlocks& lent_;
  bool files_to_send_ = false;
  std::vector<FileDescriptor> files_;  // received but not used yet; at most two
  std::optional<PeerPool> peer_pool_;
  std::vector<std::byte> ahead_;  // read-ahead buffer; one read fetches many small frames
  size_t read_ = 0;               // bytes of ahead_ that the reader has consumed
  size_t arrived_ = 0;            // bytes in ahead_
  bool drained_ = false;          // the last read emptied the socket
};

}  // namespace baton
