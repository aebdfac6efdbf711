#include "kvtransfer/sockets/tcp_connection.h"

#include <sys/socket.h>

#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "kvtransfer/protocol/transfer_plan.h"

namespace baton {

ssize_t TcpConnection::ReadSome(std::span<iovec> buffers) {
  return readv(fd(), buffers.data(), static_cast<int>(buffers.size()));
}

ssize_t TcpConnection::WriteSome(std::span<iovec> buffers) {
  msghdr message{};
  message.msg_iov = buffers.data();
  message.msg_iovlen = buffers.size();
  return sendmsg(fd(), &message, MSG_NOSIGNAL);
}

absl::Status TcpConnection::OnPayloadFrame(Frame frame, int64_t) {
  auto* block = std::get_if<BlockFrame>(&frame);
  if (block == nullptr) return Unexpected(frame);
  const int64_t most = BlockValidBytes(node_.pool().layout, sender_geometry().block_size);
  if (block->payload_bytes < 1 || block->payload_bytes > most) {
    return absl::InvalidArgumentError(
        absl::StrFormat("Block: payload_bytes %d is outside [1, %d]", block->payload_bytes, most));
  }
  std::optional<BlockPlacement> placement = node_.receiver().OnBlock(peer(), *block);
  if (placement) {
    reader_.StartPayload(BlockLanding(node_.pool(), *std::move(placement), std::move(*block)));
  } else {
    reader_.StartPayload(BlockLanding(block->payload_bytes));
  }
  return absl::OkStatus();
}

void TcpConnection::OnLanded(const BlockLanding& landing, int64_t now_us) {
  if (!landing.placement()) return;
  node_.receiver().OnBlockLanded(*landing.placement(), landing.payload_bytes(), landing.verified(),
                                 Now(now_us));
}

absl::Status TcpConnection::OnPayloadAnswer(Frame frame, int64_t now_us) {
  if (std::holds_alternative<NcclOfferFrame>(frame)) {
    return Send(NcclStopFrame{.closed = true,
                              .landed = 0,
                              .code = absl::StatusCode::kUnimplemented,
                              .reason = "the sender does without NCCL"});
  }
  return StreamConnection::OnPayloadAnswer(std::move(frame), now_us);
}

void TcpConnection::StartBlock(BlockDispatch dispatch) {
  const BlockFrame& frame = dispatch.frame;
  std::vector<uint32_t> crcs =
      node_.checksums().Of(dispatch.block, frame.valid_tokens, frame.layers);
  writer_.StartBlock(BlockDeparture(node_.pool(), std::move(dispatch), std::move(crcs)));
}

absl::Status TcpConnection::QueueBlocks(int64_t) {
  if (writer_.block_under_way()) return absl::OkStatus();
  if (std::optional<BlockDispatch> next = node_.sender().NextBlock(peer())) {
    StartBlock(*std::move(next));
  }
  return absl::OkStatus();
}

void TcpConnection::ReleaseEndedTransfers() {
  if (BlockLanding* landing = reader_.landing(); landing != nullptr && landing->placement() &&
                                                 !node_.receiver().IsLive(*landing->placement())) {
    landing->Divert();
  }
  if (BlockDeparture* departure = writer_.departure();
      departure != nullptr && !node_.sender().IsLive(departure->dispatch())) {
    departure->Detach();
  }
}

}  // namespace baton
