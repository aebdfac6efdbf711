// TCP connection on which blocks, and layers of blocks, travel over NCCL in batches if that works
// (nccl_send_channel.h), and otherwise within the stream.
//
// The receiver checks a block from NCCL like all other blocks. First it checks that the block was
// requested. When the block is in the pool, it checks the CRC32C of the block's pieces; nothing
// reads the block before that. A wrong block fails its own transfer and no other transfer of the
// batch.
//
// A pool in device memory gathers and scatters blocks itself, and computes the checksums
// (device_block_copies.h). This connection polls these copies:
//  - A batch is sent when all its blocks are gathered. If batches stop before that, the blocks go
//    within the stream.
//  - A batch lands block by block. Meanwhile this connection reads nothing and keeps reports for
//    later. So the batch's slot is not used again too early.
//  - If a transfer ends, its copy is abandoned. The transfer's terminal event waits for the copy.
//
// For a host pool, this thread copies and checks the blocks at once.
//
// Thread safety: belongs to the I/O thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "kvtransfer/nccl/nccl_receive_channel.h"
#include "kvtransfer/nccl/nccl_runtime.h"
#include "kvtransfer/nccl/nccl_send_channel.h"
#include "kvtransfer/pool/device_block_copies.h"
#include "kvtransfer/sockets/tcp_connection.h"

namespace baton {

class NcclConnection final : public TcpConnection {
 public:
  // `nccl` outlives this.
  NcclConnection(ConnectionParts parts, NcclRuntime& nccl);

  // A Done waits for the batch that is landing: the sender must learn first that it has landed.
  absl::Status Send(const Frame& frame) override;
  // Handles a report about this connection's communicators.
  absl::Status OnReport(const NcclReport& report, int64_t now_us);
  void ReleaseEndedTransfers() override;
  PoolWait waits_for_pool() const override;

 protected:
  absl::Status OnGreeted(const HelloFrame& hello) override;
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
  // A batch of which the blocks are being gathered.
  struct Gathering {
    std::byte* slot;
    int64_t bytes = 0;
    std::vector<BlockDispatch> blocks = {};
    std::vector<DeviceBlockCopy> copies = {};  // of these blocks; none for a host pool
    absl::Status failed = {};
  };
  // Landing progress of an arrived batch.
  struct Landing {
    explicit Landing(NcclReceiveChannel::Arrival arrived)
        : arrival(std::move(arrived)), staged(arrival.staged) {}

    NcclReceiveChannel::Arrival arrival;
    size_t next = 0;                       // index of the next block
    std::byte* staged;                     // payload of that block
    std::optional<BlockPlacement> placed;  // where that block goes
    std::optional<DeviceBlockCopy> copy;   // into the pool
  };

  absl::Status QueueBatches(int64_t now_us);
  // Starts to gather the next blocks, or layers of them, that fit into the free slot. Leaves
  // gathering_ unset if there is none.
  void BeginBatch();
  bool GatherBlock(Gathering& batch);
  void GatherHostBlock(Gathering& batch, ReadableBlock block);
  // Returns true when gathering_ has ended and its frames have their checksums.
  absl::StatusOr<bool> Gathered();
  void TakeBatchBack();
  absl::Status HandleReport(const NcclReport& report, int64_t now_us);
  // Ends landing_, and tells the sender.
  absl::Status EndLanding(int64_t now_us);
  // Both return true when done, and false while they wait for the pool.
  bool LandBatch(int64_t now_us);
  bool LandBlock(const BlockFrame& frame, int64_t now_us);
  absl::Status LandHostBlock(const BlockFrame& frame);
  absl::Status Verify(std::span<const uint32_t> landed, const BlockFrame& frame) const;
  // Sends the channels' frames, and reports their landed blocks and fallbacks.
  absl::Status Flush(int64_t now_us);

  NcclRuntime& nccl_;
  bool lack_reported_ = false;  // that the receiver offers no NCCL
  std::optional<Gathering> gathering_;
  std::optional<Landing> landing_;  // set while it waits for the pool
  std::deque<NcclReport> reports_;  // received during that wait
  std::vector<Frame> done_;         // to be sent after that wait
  NcclSendChannel sends_;           // used if we opened the connection
  NcclReceiveChannel receives_;     // used if we accepted it
};

}  // namespace baton
