// A TCP connection whose blocks travel over NCCL, in batches, wherever that works
// (nccl_send_channel.h), and within the stream where it does not.
//
// The receiver checks a block that came over NCCL as any other: whether it was asked for, and once
// it lies in the pool, where nothing reads it yet, the CRC32C of its pieces. What is wrong with one
// block fails its transfer and no other of the batch.
//
// Thread safety: belongs to the I/O thread.
#pragma once

#include <cstdint>
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

 protected:
  absl::Status OnGreeted(const HelloFrame& hello) override;
  bool MovesLayers() const override { return false; }  // batches are of whole blocks
  absl::Status OnPayloadFrame(Frame frame, int64_t now_us) override;
  absl::Status OnPayloadAnswer(Frame frame, int64_t now_us) override;
  absl::Status OnPayloadTimer(int64_t now_us) override;
  int64_t NextPayloadTimerUs() const override;
  absl::Status QueueBlocks(int64_t now_us) override;
  bool HasBlocksToQueue() const override;

 private:
  absl::Status QueueInStream(int64_t now_us);
  absl::Status QueueBatches(int64_t now_us);
  // The next blocks, as many as fit; those whose gathering failed come back with the reason.
  absl::Status Gather(std::byte* slot, std::vector<BlockDispatch>& blocks, int64_t& bytes);
  void Land(const NcclReceiveChannel::Arrival& arrival, int64_t now_us);
  absl::Status Verify(BlockId block, const BlockFrame& frame) const;
  // Passes on what the channels have to say.
  absl::Status Flush(int64_t now_us);

  NcclRuntime& nccl_;
  NcclSendChannel sends_;        // where the connection was opened by us
  NcclReceiveChannel receives_;  // where it was accepted
};

}  // namespace baton
