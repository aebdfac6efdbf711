// A TCP connection whose blocks travel over NCCL, in batches, wherever that works
// (nccl_send_channel.h), and within the stream where it does not.
//
// The receiver checks a block that came over NCCL as any other: whether it was asked for, and once
// it lies in the pool, where nothing reads it yet, the CRC32C of its pieces. What is wrong with one
// one block fails its transfer and no other of the batch.
//
// Checksums are taken of leases of the pool (transfer_pool.h), before a block is gathered and after
// it was scattered. While an arrived batch waits for one, this connection reads nothing and keeps
// reports for later, so that the batch's staging memory stays.
//
// Thread safety: belongs to the I/O thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "kvtransfer/nccl/nccl_receive_channel.h"
#include "kvtransfer/nccl/nccl_runtime.h"
#include "kvtransfer/nccl/nccl_send_channel.h"
#include "kvtransfer/sockets/tcp_connection.h"

namespace baton {

class NcclConnection final : public TcpConnection {
 public:
  // `nccl` outlives this.
  NcclConnection(ConnectionParts parts, NcclRuntime& nccl);

  // What became of this connection's communicators.
  absl::Status OnReport(const NcclReport& report, int64_t now_us);
  void ReleaseEndedTransfers() override;
  PoolWait waits_for_pool() const override;

 protected:
  absl::Status OnGreeted(const HelloFrame& hello) override;
  bool MovesLayers() const override { return false; }  // batches are of whole blocks
  absl::Status OnPayloadFrame(Frame frame, int64_t now_us) override;
  absl::Status OnPayloadAnswer(Frame frame, int64_t now_us) override;
  absl::Status OnPayloadTimer(int64_t now_us) override;
  int64_t NextPayloadTimerUs() const override;
  absl::Status QueueBlocks(int64_t now_us) override;
  bool HasBlocksToQueue() const override;
  bool ReadingPaused() const override { return landing_ || TcpConnection::ReadingPaused(); }
  absl::Status ResumeReading(int64_t now_us) override;
  std::optional<BlockDispatch> NextToSend() override;

 private:
  // An arrived batch, as far as it has landed.
  struct Landing {
    explicit Landing(NcclReceiveChannel::Arrival arrived)
        : arrival(std::move(arrived)), staged(arrival.staged) {}

    NcclReceiveChannel::Arrival arrival;
    size_t next = 0;                          // of its blocks
    const std::byte* staged;                  // the next one's payload
    std::optional<BlockPlacement> scattered;  // the next one lies in the pool
    std::optional<LeaseRequest> check;        // and these bytes of it are to be checked
  };

  absl::Status QueueBatches(int64_t now_us);
  // The next blocks, as many as fit and can be read; those whose gathering failed come back with
  // the reason.
  absl::Status Gather(std::byte* slot, std::vector<BlockDispatch>& blocks, int64_t& bytes);
  absl::Status HandleReport(const NcclReport& report, int64_t now_us);
  // Both return whether it is done; false: the pool is waited for.
  bool LandBatch(int64_t now_us);
  bool LandBlock(const BlockFrame& frame, int64_t now_us);
  static absl::Status Verify(const PieceBytes& landed, const BlockFrame& frame);
  // Passes on what the channels have to say.
  absl::Status Flush(int64_t now_us);

  NcclRuntime& nccl_;
  bool waiting_for_batch_ = false;  // what TcpConnection waits to send was to go into a batch
  std::optional<Landing> landing_;  // waits for the pool
  std::deque<NcclReport> reports_;  // while it does
  NcclSendChannel sends_;           // where the connection was opened by us
  NcclReceiveChannel receives_;     // where it was accepted
};

}  // namespace baton
