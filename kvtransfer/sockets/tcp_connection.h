// A connection on which blocks travel within the stream: out of pool memory and into blocks that
// nothing reads yet, without a copy in between. An offer of NCCL is refused.
//
// Thread safety: belongs to the I/O thread.
#pragma once

#include "kvtransfer/sockets/stream_connection.h"

namespace baton {

class TcpConnection : public StreamConnection {
 public:
  using StreamConnection::StreamConnection;
  void ReleaseEndedTransfers() override;

 protected:
  PullMode pulls() const override { return PullMode::kRequested; }
  ssize_t ReadSome(std::span<iovec> buffers) override;
  ssize_t WriteSome(std::span<iovec> buffers) override;
  absl::Status OnPayloadFrame(Frame frame, int64_t now_us) override;
  absl::Status OnPayloadAnswer(Frame frame, int64_t now_us) override;
  void OnLanded(const BlockLanding& landing, int64_t now_us) override;
  absl::Status QueueBlocks(int64_t now_us) override;

  // REQUIRES: no block is under way in the stream.
  void StartBlock(BlockDispatch dispatch);
};

}  // namespace baton
