#include "kvtransfer/sockets/tcp_connection.h"

#include <sys/socket.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"

namespace baton {

ssize_t TcpConnection::ReadTls(std::span<iovec> buffers) {
  ssize_t total = 0;
  for (const iovec& into : buffers) {
    std::span left(static_cast<std::byte*>(into.iov_base), into.iov_len);
    while (!left.empty()) {
      const ssize_t got = tls_->Read(left);
      if (got <= 0) return total > 0 ? total : got;
      total += got;
      left = left.subspan(static_cast<size_t>(got));
    }
  }
  return total;
}

ssize_t TcpConnection::ReadSome(std::span<iovec> buffers) {
  if (tls_ != nullptr) return ReadTls(buffers);
  return readv(fd(), buffers.data(), static_cast<int>(buffers.size()));
}

ssize_t TcpConnection::WriteSome(std::span<iovec> buffers) {
  if (tls_ != nullptr) return tls_->WriteBatch(buffers);
  msghdr message{};
  message.msg_iov = buffers.data();
  message.msg_iovlen = buffers.size();
  return sendmsg(fd(), &message, MSG_NOSIGNAL);
}

absl::Status TcpConnection::OnPayloadFrame(Frame frame, int64_t now_us) {
  auto* block = std::get_if<BlockFrame>(&frame);
  if (block == nullptr) return Unexpected(frame);
  const int64_t most = BlockValidBytes(node_.layout(), sender_geometry().block_size);
  const int64_t least = LeastPayloadBytes(node_.layout());
  if (block->payload_bytes < least || block->payload_bytes > most) {
    return absl::InvalidArgumentError(absl::StrFormat("Block: payload_bytes %d is outside [%d, %d]",
                                                      block->payload_bytes, least, most));
  }
  std::optional<BlockPlacement> placement = node_.receiver().OnBlock(peer(), *block);
  if (placement) {
    Land(*std::move(placement), std::move(*block), now_us);
  } else {
    StartPayload(BlockLanding(block->payload_bytes), now_us);
  }
  return absl::OkStatus();
}

void TcpConnection::Land(BlockPlacement placement, BlockFrame frame, int64_t now_us) {
  LeaseRequest lease(PoolAccess::kLand, placement.parts, frame.layers);
  arriving_.emplace(Arriving{std::move(placement), std::move(frame), std::move(lease)});
  ResumeArriving(now_us);
}

void TcpConnection::ResumeArriving(int64_t now_us) {
  const bool live = node_.receiver().IsLive(arriving_->placement);
  const absl::StatusOr<bool> ready = arriving_->lease.Ask(node_.pool());
  if (live && ready.ok() && !*ready) return;
  Arriving arriving = *std::exchange(arriving_, std::nullopt);
  if (live && ready.ok()) {
    StartPayload(BlockLanding(arriving.lease.Take(), std::move(arriving.placement),
                              std::move(arriving.frame)),
                 now_us);
    return;
  }
  node_.receiver().OnBlockLanded(arriving.placement, 0, ready.status(), now_us);
  StartPayload(BlockLanding(arriving.frame.payload_bytes), now_us);
}

void TcpConnection::OnLanded(BlockLanding landing, int64_t now_us) {
  if (!landing.placement()) return;
  if (!landing.verified().ok()) {
    node_.receiver().OnBlockLanded(*landing.placement(), landing.payload_bytes(),
                                   landing.verified(), Now(now_us));
    return;
  }
  landing.Store();
  storing_ = std::move(landing);
  ResumeStoring(now_us);
}

void TcpConnection::ResumeStoring(int64_t now_us) {
  const absl::StatusOr<bool> stored = storing_->Stored();
  if (stored.ok() && !*stored) return;
  const BlockLanding landing = *std::exchange(storing_, std::nullopt);
  if (stored.ok()) node_.moved().Received(KvMedium::kTcp, landing.payload_bytes());
  node_.receiver().OnBlockLanded(*landing.placement(), landing.payload_bytes(), stored.status(),
                                 Now(now_us));
}

absl::Status TcpConnection::ResumeReading(int64_t now_us) {
  if (storing_) ResumeStoring(now_us);
  if (arriving_) ResumeArriving(now_us);
  return absl::OkStatus();
}

PoolWait TcpConnection::waits_for_pool() const {
  if (storing_) return PoolWait::kCopy;
  if (arriving_) return arriving_->lease.waits_for();
  return departing_ ? departing_->lease.waits_for() : PoolWait::kNothing;
}

absl::Status TcpConnection::OnPayloadAnswer(Frame frame, int64_t now_us) {
  if (std::holds_alternative<NcclOfferFrame>(frame)) {
    return Send(NcclStopFrame{.closed = true,
                              .landed = 0,
                              .code = absl::StatusCode::kUnimplemented,
                              .reason = "the sender does not use NCCL"});
  }
  return StreamConnection::OnPayloadAnswer(std::move(frame), now_us);
}

std::optional<BlockDispatch> TcpConnection::TakeWaiting() {
  if (!departing_) return std::nullopt;
  BlockDispatch dispatch = std::move(departing_->dispatch);
  departing_.reset();
  return dispatch;
}

std::optional<int64_t> TcpConnection::NextBytes() const {
  if (departing_) return departing_->dispatch.frame.payload_bytes;
  return node_.sender().NextBlockBytes(peer());
}

std::optional<TcpConnection::ReadableBlock> TcpConnection::TakeReadable(
    std::optional<int64_t> most_bytes) {
  while (true) {
    if (most_bytes && NextBytes().value_or(*most_bytes + 1) > *most_bytes) return std::nullopt;
    if (!departing_) {
      std::optional<BlockDispatch> next = NextToSend();
      if (!next) return std::nullopt;
      LeaseRequest lease(PoolAccess::kRead, LeadingTokens(next->blocks, next->frame.valid_tokens),
                         next->frame.layers);
      departing_.emplace(Departing{*std::move(next), std::move(lease)});
    }
    const absl::StatusOr<bool> ready = departing_->lease.Ask(node_.pool());
    if (ready.ok() && !*ready) return std::nullopt;
    Departing departing = *std::exchange(departing_, std::nullopt);
    if (ready.ok()) return ReadableBlock{std::move(departing.dispatch), departing.lease.Take()};
    node_.sender().OnBlockUnreadable(departing.dispatch, ready.status());
  }
}

absl::Status TcpConnection::QueueBlocks(int64_t) {
  if (writer_.block_under_way()) return absl::OkStatus();
  std::optional<ReadableBlock> next = TakeReadable();
  if (!next) return absl::OkStatus();
  const BlockFrame& frame = next->dispatch.frame;
  std::vector<uint32_t> crcs = node_.checksums().Of(next->dispatch.blocks, frame.valid_tokens,
                                                    frame.layers, next->lease.bytes());
  writer_.StartBlock(
      BlockDeparture(std::move(next->lease), std::move(next->dispatch), std::move(crcs)));
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
  if (storing_ && !node_.receiver().IsLive(*storing_->placement())) storing_.reset();
  if (departing_ && !node_.sender().IsLive(departing_->dispatch)) departing_.reset();
}

}  // namespace baton
