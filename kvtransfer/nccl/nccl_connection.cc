#include "kvtransfer/nccl/nccl_connection.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/status_macros.h"

namespace baton {

NcclConnection::NcclConnection(ConnectionParts parts, NcclRuntime& nccl)
    : TcpConnection(std::move(parts)),
      nccl_(nccl),
      sends_(peer(), nccl.options(), nccl.version(), node_.layout().bytes_per_block(),
             nccl.driver()),
      receives_(peer(), nccl.options(), nccl.version(), node_.layout().bytes_per_block(),
                nccl.driver()) {}

absl::Status NcclConnection::OnGreeted(const HelloFrame& hello) {
  const int32_t ours = node_.layout().block_size();
  if (hello.fingerprint.block_size != ours) {
    nccl_.ReportFallback(absl::UnimplementedError(
        absl::StrFormat("block_size: ours %d, theirs %d; NCCL needs equal block sizes", ours,
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
  if (landing_) {
    reports_.push_back(report);
    return absl::OkStatus();
  }
  return HandleReport(report, now_us);
}

absl::Status NcclConnection::HandleReport(const NcclReport& report, int64_t now_us) {
  if (opened_by_us()) {
    sends_.OnReport(report, now_us);
  } else if (auto arrival = receives_.OnReport(report, now_us)) {
    landing_.emplace(*std::move(arrival));
    if (!LandBatch(now_us)) return absl::OkStatus();  // Landed waits: the slot is in use
    landing_.reset();
  }
  return Flush(now_us);
}

absl::Status NcclConnection::ResumeReading(int64_t now_us) {
  if (landing_ && LandBatch(now_us)) {
    landing_.reset();
    RETURN_IF_ERROR(Flush(now_us));
    while (!landing_ && !reports_.empty()) {
      const NcclReport report = std::move(reports_.front());
      reports_.pop_front();
      RETURN_IF_ERROR(HandleReport(report, now_us));
    }
  }
  return TcpConnection::ResumeReading(now_us);
}

PoolWait NcclConnection::waits_for_pool() const {
  if (landing_) return landing_->check ? landing_->check->waits_for() : PoolWait::kCopy;
  const NcclSendChannel::Way way = sends_.way();
  const bool held_up = way == NcclSendChannel::Way::kWait ||
                       (way == NcclSendChannel::Way::kBatch && sends_.FreeSlot() == nullptr);
  return waits_to_send() && held_up ? PoolWait::kNothing : TcpConnection::waits_for_pool();
}

void NcclConnection::ReleaseEndedTransfers() {
  TcpConnection::ReleaseEndedTransfers();
  if (landing_ && !node_.receiver().IsLive(*landing_->scattered)) landing_->check.reset();
}

absl::Status NcclConnection::OnPayloadTimer(int64_t now_us) {
  if (landing_) return absl::OkStatus();
  sends_.OnTimer(now_us);
  receives_.OnTimer(now_us);
  return Flush(now_us);
}

int64_t NcclConnection::NextPayloadTimerUs() const {
  return std::min(sends_.NextTimerUs(), receives_.NextTimerUs());
}

absl::Status NcclConnection::Flush(int64_t now_us) {
  // First, because a Done may be read next, and it requires that all blocks count as sent.
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
  return !waits_to_send() && (sends_.HasUnlanded() || TcpConnection::HasBlocksToQueue());
}

absl::Status NcclConnection::QueueBlocks(int64_t now_us) {
  const NcclSendChannel::Way way = sends_.way();
  if (waiting_for_batch_ && waits_to_send() && way != NcclSendChannel::Way::kBatch) {
    sends_.TakeBack(*TakeWaiting());
  }
  switch (way) {
    case NcclSendChannel::Way::kWait:
      return absl::OkStatus();
    case NcclSendChannel::Way::kBatch:
      return QueueBatches(now_us);
    case NcclSendChannel::Way::kStream:
      break;
  }
  // A receiver offers before it pulls, and there are no blocks to queue before a pull. So an offer
  // that is still under way is not reported.
  if (opened_by_us() && !sends_.offered() && !lack_reported_ && HasBlocksToQueue()) {
    lack_reported_ = true;
    nccl_.ReportFallback(
        absl::UnavailableError("the receiver offers no NCCL: it has no NCCL library, its KV is not "
                               "on a GPU, or its blocks "
                               "have another size"));
  }
  return TcpConnection::QueueBlocks(now_us);
}

std::optional<BlockDispatch> NcclConnection::NextToSend() {
  waiting_for_batch_ = sends_.way() == NcclSendChannel::Way::kBatch;
  while (sends_.HasUnlanded()) {
    BlockDispatch dispatch = *sends_.TakeUnlanded();
    if (node_.sender().IsLive(dispatch)) return dispatch;
  }
  return TcpConnection::NextToSend();
}

absl::Status NcclConnection::QueueBatches(int64_t now_us) {
  while ((HasBlocksToQueue() || (waits_to_send() && sends_.FreeSlot() != nullptr)) &&
         sends_.way() == NcclSendChannel::Way::kBatch) {
    std::vector<BlockDispatch> blocks;
    int64_t bytes = 0;
    if (absl::Status status = Gather(sends_.FreeSlot(), blocks, bytes); !status.ok()) {
      sends_.OnGatherFailed(std::move(blocks), status);
      return Flush(now_us);
    }
    if (blocks.empty()) return absl::OkStatus();  // waits for the pool
    Moved(bytes);
    sends_.StartBatch(std::move(blocks), bytes, now_us);
    RETURN_IF_ERROR(Flush(now_us));
  }
  return absl::OkStatus();
}

absl::Status NcclConnection::Gather(std::byte* slot, std::vector<BlockDispatch>& blocks,
                                    int64_t& bytes) {
  const int64_t whole = node_.layout().bytes_per_block();
  while (blocks.size() < kMaxBatchBlocks && bytes + whole <= sends_.batch_bytes()) {
    std::optional<ReadableBlock> next = TakeReadable();
    if (!next) break;
    BlockDispatch& dispatch = blocks.emplace_back(std::move(next->dispatch));
    const int32_t valid = dispatch.frame.valid_tokens;
    RETURN_IF_ERROR(nccl_.Gather(dispatch.blocks, valid, slot + bytes));
    dispatch.frame.piece_crcs =
        node_.checksums().Of(dispatch.blocks, valid, LayerRange{}, next->lease.bytes());
    bytes += dispatch.frame.payload_bytes;
  }
  return absl::OkStatus();
}

// Lands blocks in the batch's order, because each transfer expects its blocks in order.
bool NcclConnection::LandBatch(int64_t now_us) {
  while (landing_->next < landing_->arrival.blocks.size()) {
    const BlockFrame& frame = landing_->arrival.blocks[landing_->next];
    if (!LandBlock(frame, now_us)) return false;
    landing_->scattered.reset();
    landing_->check.reset();
    landing_->staged += frame.payload_bytes;
    ++landing_->next;
    Moved(frame.payload_bytes);
  }
  return true;
}

bool NcclConnection::LandBlock(const BlockFrame& frame, int64_t now_us) {
  if (!landing_->scattered) {
    landing_->scattered = node_.receiver().OnBlock(peer(), frame);
    if (!landing_->scattered) return true;
    // Block sizes are equal, so one part holds the whole payload.
    const GroupBlocks& blocks = landing_->scattered->parts.front().blocks;
    if (absl::Status status = nccl_.Scatter(landing_->staged, blocks, frame.valid_tokens);
        !status.ok()) {
      node_.receiver().OnBlockLanded(*landing_->scattered, frame.payload_bytes, status, now_us);
      return true;
    }
    landing_->check.emplace(PoolAccess::kReadLanded, landing_->scattered->parts, LayerRange{});
  }
  if (!landing_->check) return true;  // its transfer has ended
  const absl::StatusOr<bool> ready = landing_->check->Ask(node_.pool());
  if (ready.ok() && !*ready) return false;
  const absl::Status landed =
      ready.ok() ? Verify(landing_->check->Take().bytes(), frame) : ready.status();
  node_.receiver().OnBlockLanded(*landing_->scattered, frame.payload_bytes, landed, now_us);
  return true;
}

absl::Status NcclConnection::Verify(const PieceBytes& landed, const BlockFrame& frame) {
  auto theirs = frame.piece_crcs.begin();
  for (const Piece piece : landed.pieces()) {
    const uint32_t crc = landed.Checksum(piece);
    if (crc != *theirs) {
      return absl::DataLossError(absl::StrFormat(
          "transfer %d block %d %s: CRC32C %08x, the sender's is %08x", frame.transfer_id,
          frame.block, PieceName(landed.layout(), piece), crc, *theirs));
    }
    ++theirs;
  }
  return absl::OkStatus();
}

}  // namespace baton
