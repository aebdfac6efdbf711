// Connection between two processes of one host. Frames travel over a Unix socket; block payloads do
// not travel at all. The sender passes a file in the handshake and tells the place of each block.
// The receiver copies each block from that place and verifies it (shared_pool.h).
//
// After HelloReply the sender describes the file, by SharedPool or SharedSlots, with two
// descriptors: the file, and the generations of its blocks. Pulls are implied: a SharedBlock
// follows every block's announcement.
//
// This class is the receiver. The sender depends on its pool: host_shm_connection.h lends the
// pool's own blocks, staged_shm_connection.h lends copies of them.
//
// The receiver copies one block after the other. If its own pool is not in host memory, a block
// waits for a lease, is copied to it and then stored; meanwhile nothing is read. SharedTaken
// follows the copy, because it does not matter to the sender whether the block is stored.
//
// Thread safety: belongs to the I/O thread.
#pragma once

#include <optional>
#include <vector>

#include "kvtransfer/pool/lease_request.h"
#include "kvtransfer/shm/shared_pool.h"
#include "kvtransfer/sockets/stream_connection.h"

namespace baton {

class ShmConnection : public StreamConnection {
 public:
  void ReleaseEndedTransfers() override;
  bool HasUnread() const override { return read_ < arrived_ && !ReadingPaused(); }
  bool AnswersAtOnce() const override { return true; }
  PoolWait waits_for_pool() const override;

 protected:
  // Frames are gathered for one write up to these limits: bytes of frames, and bytes of blocks read
  // for checksums. The second limit lets the receiver copy a block while the sender computes the
  // checksums of the next.
  static constexpr size_t kGatherFrameBytes = 16 << 10;
  static constexpr int64_t kGatherBlockBytes = 1 << 20;

  // `lent` belongs to the transport and outlives this.
  ShmConnection(ConnectionParts parts, const LentFile& lent)
      : StreamConnection(std::move(parts)), lent_(lent) {}

  // Returns the frame that describes our file.
  virtual Frame Describe() const = 0;

  PullMode pulls() const override { return PullMode::kImplied; }
  bool SharesClock() const override { return true; }
  ssize_t ReadSome(std::span<iovec> buffers) override;
  ssize_t WriteSome(std::span<iovec> buffers) override;
  absl::Status OnAccepted() override;
  absl::Status OnPayloadFrame(Frame frame, int64_t now_us) override;
  bool ReadingPaused() const override { return landing_.has_value(); }
  absl::Status ResumeReading(int64_t now_us) override;

 private:
  // A block on its way from the sender's file into our pool.
  struct Landing {
    SharedBlockFrame frame;
    BlockPlacement placement;
    LeaseRequest request;
    std::optional<PoolLease> storing;  // set once the sender's bytes were copied
  };

  template <typename F>
  absl::Status OnSharedFile(const F& frame);
  absl::Status OnSharedBlock(SharedBlockFrame frame, int64_t now_us);
  absl::Status ContinueLanding(int64_t now_us);
  // Copies the block into the lease, and starts to store it if it is right.
  absl::Status CopyBlock(PoolLease lease);
  void EndLanding(const absl::Status& landed, int64_t now_us);
  // The place of the latest SharedBlock is no longer read.
  absl::Status Taken();

  const LentFile& lent_;
  bool files_to_send_ = false;
  std::vector<FileDescriptor> files_;  // received but not used yet; at most two
  std::optional<PeerPool> peer_pool_;
  uint64_t taken_ = 0;  // SharedBlocks whose places are no longer read
  std::optional<Landing> landing_;
  std::vector<std::byte> ahead_;  // read-ahead buffer; one read fetches many small frames
  size_t read_ = 0;               // bytes of ahead_ that the reader has consumed
  size_t arrived_ = 0;            // bytes in ahead_
  bool drained_ = false;          // the last read emptied the socket
};

}  // namespace baton
