// A connection on which blocks travel within the stream: out of a lease of the sender's pool and
// into one of the receiver's. With host pools nothing is copied in between. An offer of NCCL is
// refused.
//
// One block at a time is on its way in each direction: it waits for its lease, travels, and at the
// receiver is stored before the next is read.
//
// Thread safety: belongs to the I/O thread.
#pragma once

#include <optional>

#include "kvtransfer/pool/lease_request.h"
#include "kvtransfer/sockets/stream_connection.h"

namespace baton {

class TcpConnection : public StreamConnection {
 public:
  using StreamConnection::StreamConnection;
  void ReleaseEndedTransfers() override;
  PoolWait waits_for_pool() const override;

 protected:
  // A block whose bytes can be read.
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

  // The block that goes next.
  virtual std::optional<BlockDispatch> NextToSend() { return node_.sender().NextBlock(peer()); }
  // The same, once its bytes can be read; nothing where there is none, or it waits for the pool.
  std::optional<ReadableBlock> TakeReadable();
  // What the payload of this frame lands in.
  void Land(BlockPlacement placement, BlockFrame frame, int64_t now_us);
  // Taken by TakeReadable and waiting for the pool.
  bool waits_to_send() const { return departing_.has_value(); }
  std::optional<BlockDispatch> TakeWaiting();

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

  void ResumeStoring(int64_t now_us);
  void ResumeArriving(int64_t now_us);

  std::optional<Departing> departing_;
  std::optional<Arriving> arriving_;     // its payload is not read yet
  std::optional<BlockLanding> storing_;  // its payload was read
};

}  // namespace baton
