// Connection on which blocks travel within the stream, from a lease of the sender's pool into a
// lease of the receiver's pool. With host pools, no copy happens in between. An NCCL offer is
// refused.
//
// Each direction handles one block at a time. A block waits for its lease, then travels. The
// receiver stores it before it reads the next one.
//
// Thread safety: belongs to the I/O thread.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "kvtransfer/pool/lease_request.h"
#include "kvtransfer/sockets/stream_connection.h"

namespace baton {

class TcpConnection : public StreamConnection {
 public:
  using StreamConnection::StreamConnection;
  void ReleaseEndedTransfers() override;
  PoolWait waits_for_pool() const override;

 protected:
  // A block with a ready lease.
  struct ReadableBlock {
    BlockDispatch dispatch;
    PoolLease lease;
  };

  PullMode pulls() const override { return PullMode::kRequested; }
  ssize_t ReadSome(std::span<iovec> buffers) override;
  ssize_t WriteSome(std::span<iovec> buffers) override;
  absl::Status OnPayloadFrame(Frame frame, int64_t now_us) override;
  absl::Status OnPayloadAnswer(Frame frame, int64_t now_us) override;
  void OnLanded(BlockLanding landing, int64_t now_us) override;
  bool ReadingPaused() const override { return arriving_.has_value() || storing_.has_value(); }
  absl::Status ResumeReading(int64_t now_us) override;
  absl::Status QueueBlocks(int64_t now_us) override;
  bool HasBlocksToQueue() const override {
    return !departing_ && StreamConnection::HasBlocksToQueue();
  }

  // Returns the block to send next.
  virtual std::optional<BlockDispatch> NextToSend() { return node_.sender().NextBlock(peer()); }
  // Same, once its bytes can be read. Returns nothing if there is no block, if it waits for the
  // pool, or if it has more than `most_bytes` of payload. A limit needs a NextToSend that returns
  // the sender's blocks.
  std::optional<ReadableBlock> TakeReadable(std::optional<int64_t> most_bytes = {});
  // Prepares memory for the payload of this frame.
  void Land(BlockPlacement placement, BlockFrame frame, int64_t now_us);
  // True if a block taken by TakeReadable waits for the pool.
  bool waits_to_send() const { return departing_.has_value(); }
  std::optional<BlockDispatch> TakeWaiting();
  // Returns the payload bytes of the block that waits for the pool, or else of the sender's next
  // one.
  std::optional<int64_t> NextBytes() const;

 private:
  struct Departing {
    BlockDispatch dispatch;
    LeaseRequest lease;
  };
  struct Arriving {
    BlockPlacement placement;
    BlockFrame frame;
    LeaseRequest lease;
  };

  ssize_t ReadTls(std::span<iovec> buffers);
  void ResumeStoring(int64_t now_us);
  void ResumeArriving(int64_t now_us);

  std::optional<Departing> departing_;
  std::optional<Arriving> arriving_;     // its payload has not been read yet
  std::optional<BlockLanding> storing_;  // its payload was read and is being stored
};

}  // namespace baton
