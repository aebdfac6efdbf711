// A connection between two processes of one host: frames go over a Unix socket, block payloads do
// not travel at all. The sender passes its pool's file in the handshake and says of each block
// where it lies; the receiver copies it out of there, checking as it goes (shared_pool.h).
//
// After HelloReply the sender sends SharedPool, with two descriptors: of its pool and of its
// blocks' generations. Pulls are implied: a SharedBlock follows every block's announcement at once,
// since it costs the sender a few bytes of its socket's buffer and nothing else.
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
  // `lent` is the transport's own and outlives this.
  ShmConnection(ConnectionParts parts, LentBlocks& lent)
      : StreamConnection(std::move(parts)), lent_(lent) {}

  // A copy ends within the call that began it, and what is lent the transport takes back.
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
  std::vector<FileDescriptor> files_;  // received and not used yet; at most two
  std::optional<PeerPool> peer_pool_;
  std::vector<std::byte> ahead_;  // read ahead of the frames: many small ones at once
  size_t read_ = 0;               // of it, by the reader
  size_t arrived_ = 0;            // in it
  bool drained_ = false;          // the last read took all that there was
};

}  // namespace baton
