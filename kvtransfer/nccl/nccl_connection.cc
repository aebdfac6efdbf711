#include "kvtransfer/nccl/nccl_connection.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "kvtransfer/protocol/transfer_plan.h"

namespace baton {

NcclConnection::NcclConnection(ConnectionParts parts, NcclRuntime& nccl)
    : TcpConnection(std::move(parts)),
      nccl_(nccl),
      sends_(peer(), nccl.options(), nccl.version(), node_.pool().layout.bytes_per_block(),
             nccl.driver()),
      receives_(peer(), nccl.options(), nccl.version(), node_.pool().layout.bytes_per_block(),
                nccl.driver()) {}

absl::Status NcclConnection::OnGreeted(const HelloFrame& hello) {
  const int32_t ours = node_.pool().layout.block_size();
  if (hello.fingerprint.block_size != ours) {
    nccl_.ReportFallback(absl::UnimplementedError(
        absl::StrFormat("block_size: ours %d, theirs %d; NCCL moves blocks of one size", ours,
                        hello.fingerprint.block_size)));
    return absl::OkStatus();
  }
  receives_.Offer();
  return Flush(0);
}

absl::Status NcclConnection::OnPayloadFrame(Frame frame, int64_t now_us) {
  if (!IsNcclFrame(frame)) return TcpConnection::OnPayloadFrame(std::move(frame), now_us);
  RETURN_IF_ERROR(receives_.OnFrame(std::move(frame), now_us));
  return Flush(now_us);
}

absl::Status NcclConnection::OnPayloadAnswer(Frame frame, int64_t now_us) {
  RETURN_IF_ERROR(sends_.OnFrame(frame, now_us));
  return Flush(now_us);
}

absl::Status NcclConnection::OnReport(const NcclReport& report, int64_t now_us) {
  if (opened_by_us()) {
    sends_.OnReport(report, now_us);
  } else if (const auto arrival = receives_.OnReport(report, now_us)) {
    Land(*arrival, now_us);
  }
  return Flush(now_us);
}

absl::Status NcclConnection::OnPayloadTimer(int64_t now_us) {
  sends_.OnTimer(now_us);
  receives_.OnTimer(now_us);
  return Flush(now_us);
}

int64_t NcclConnection::NextPayloadTimerUs() const {
  return std::min(sends_.NextTimerUs(), receives_.NextTimerUs());
}

absl::Status NcclConnection::Flush(int64_t now_us) {
  // Before the receiver's Done can be read, which counts what was sent.
  for (const BlockDispatch& dispatch : sends_.TakeLanded()) {
    node_.sender().OnBlockSent(dispatch, now_us);
  }
  for (const Frame& frame : sends_.TakeFrames()) RETURN_IF_ERROR(Send(frame));
  for (const Frame& frame : receives_.TakeFrames()) RETURN_IF_ERROR(Send(frame));
  for (const absl::Status& why : sends_.TakeFallbacks()) nccl_.ReportFallback(why);
  for (const absl::Status& why : receives_.TakeFallbacks()) nccl_.ReportFallback(why);
  return absl::OkStatus();
}

bool NcclConnection::HasBlocksToQueue() const {
  switch (sends_.way()) {
    case NcclSendChannel::Way::kWait:
      return false;
    case NcclSendChannel::Way::kBatch:
      return sends_.FreeSlot() != nullptr && TcpConnection::HasBlocksToQueue();
    case NcclSendChannel::Way::kStream:
      break;
  }
  return sends_.HasUnlanded() || TcpConnection::HasBlocksToQueue();
}

absl::Status NcclConnection::QueueBlocks(int64_t now_us) {
  switch (sends_.way()) {
    case NcclSendChannel::Way::kWait:
      return absl::OkStatus();
    case NcclSendChannel::Way::kBatch:
      return QueueBatches(now_us);
    case NcclSendChannel::Way::kStream:
      break;
  }
  return QueueInStream(now_us);
}

absl::Status NcclConnection::QueueInStream(int64_t now_us) {
  while (sends_.HasUnlanded()) {
    if (writer_.block_under_way()) return absl::OkStatus();
    BlockDispatch dispatch = *sends_.TakeUnlanded();
    if (node_.sender().IsLive(dispatch)) StartBlock(std::move(dispatch));
  }
  return TcpConnection::QueueBlocks(now_us);
}

absl::Status NcclConnection::QueueBatches(int64_t now_us) {
  while (HasBlocksToQueue() && sends_.way() == NcclSendChannel::Way::kBatch) {
    std::vector<BlockDispatch> blocks;
    int64_t bytes = 0;
    if (absl::Status status = Gather(sends_.FreeSlot(), blocks, bytes); !status.ok()) {
      sends_.OnGatherFailed(std::move(blocks), status);
      return Flush(now_us);
    }
    Moved(bytes);
    sends_.StartBatch(std::move(blocks), bytes, now_us);
    RETURN_IF_ERROR(Flush(now_us));
  }
  return absl::OkStatus();
}

absl::Status NcclConnection::Gather(std::byte* slot, std::vector<BlockDispatch>& blocks,
                                    int64_t& bytes) {
  const int64_t whole = node_.pool().layout.bytes_per_block();
  while (blocks.size() < kMaxBatchBlocks && bytes + whole <= sends_.batch_bytes()) {
    std::optional<BlockDispatch> next = node_.sender().NextBlock(peer());
    if (!next) break;
    BlockDispatch& dispatch = blocks.emplace_back(*std::move(next));
    RETURN_IF_ERROR(nccl_.Gather(dispatch.block, dispatch.frame.valid_tokens, slot + bytes));
    dispatch.frame.piece_crcs = node_.checksums().Of(dispatch.block, dispatch.frame.valid_tokens);
    bytes += dispatch.frame.payload_bytes;
  }
  return absl::OkStatus();
}

// In the batch's order, so that each block is the next that its transfer waits for.
void NcclConnection::Land(const NcclReceiveChannel::Arrival& arrival, int64_t now_us) {
  const std::byte* staged = arrival.staged;
  for (const BlockFrame& frame : arrival.blocks) {
    const std::optional<BlockPlacement> placement = node_.receiver().OnBlock(peer(), frame);
    if (placement) {
      const BlockId block = placement->parts.front().block;  // all of it: sizes are equal
      absl::Status landed = nccl_.Scatter(staged, block, frame.valid_tokens);
      if (landed.ok()) landed = Verify(block, frame);
      node_.receiver().OnBlockLanded(*placement, frame.payload_bytes, landed, now_us);
    }
    staged += frame.payload_bytes;
    Moved(frame.payload_bytes);
  }
}

absl::Status NcclConnection::Verify(BlockId block, const BlockFrame& frame) const {
  const std::vector<uint32_t> crcs = PieceChecksums(node_.pool(), block, frame.valid_tokens);
  for (size_t piece = 0; piece < crcs.size(); ++piece) {
    if (crcs[piece] == frame.piece_crcs[piece]) continue;
    return absl::DataLossError(absl::StrFormat(
        "transfer %d block %d %s: CRC32C %08x, the sender's is %08x", frame.transfer_id,
        frame.block, PieceName(static_cast<int32_t>(piece)), crcs[piece], frame.piece_crcs[piece]));
  }
  return absl::OkStatus();
}

}  // namespace baton
