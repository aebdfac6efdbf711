// TCP connection on which blocks travel over NCCL in batches if that works (nccl_send_channel.h),
// and otherwise within the stream.
//
// The receiver checks blocks from NCCL like all others. It checks that the block was requested.
// When the block is in the pool, where nothing reads it yet, it checks the CRC32C of its pieces. A
// wrong block fails its own transfer and no other transfer of the batch.
//
// Checksums need leases of the pool (transfer_pool.h): before a block is gathered, and after it was
// scattered. While an arrived batch waits for a lease, this connection reads nothing and keeps
// reports for later. So the batch's staging memory stays valid.
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

  // Handles a report about this connection's communicators.
  absl::Status OnReport(const NcclReport& report, int64_t now_us);
  void ReleaseEndedTransfers() override;
  PoolWait waits_for_pool() const override;

 protected:
  absl::Status OnGreeted(const HelloFrame& hello) override;
  bool MovesLayers() const override { return false; }  // batches hold whole blocks
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
  // Landing progress of an arrived batch.
  struct Landing {
    explicit Landing(NcclReceiveChannel::Arrival arrived)
        : arrival(std::move(arrived)), staged(arrival.staged) {}

    NcclReceiveChannel::Arrival arrival;
    size_t next = 0;                          // index of the next block
    const std::byte* staged;                  // payload of that block
    std::optional<BlockPlacement> scattered;  // set once that block is in the pool
    std::optional<LeaseRequest> check;        // lease of these bytes, to verify them
  };

  absl::Status QueueBatches(int64_t now_us);
  // Gathers the next blocks that fit into `slot` and can be read. On an error, `blocks` holds the
  // blocks that were not sent.
  absl::Status Gather(std::byte* slot, std::vector<BlockDispatch>& blocks, int64_t& bytes);
  absl::Status HandleReport(const NcclReport& report, int64_t now_us);
  // Both return true when done, and false while they wait for the pool.
  bool LandBatch(int64_t now_us);
  bool LandBlock(const BlockFrame& frame, int64_t now_us);
  static absl::Status Verify(const PieceBytes& landed, const BlockFrame& frame);
  // Sends the channels' frames, and reports their landed blocks and fallbacks.
  absl::Status Flush(int64_t now_us);

  NcclRuntime& nccl_;
  bool lack_reported_ = false;      // that the receiver offers no NCCL
  bool waiting_for_batch_ = false;  // the block that waits for its lease was meant for a batch
  std::optional<Landing> landing_;  // set while it waits for the pool
  std::deque<NcclReport> reports_;  // received during that wait
  NcclSendChannel sends_;           // used if we opened the connection
  NcclReceiveChannel receives_;     // used if we accepted it
};

}  // namespace baton
