#include "kvtransfer/nccl/nccl_connection.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/str_format.h"
#include "common/status_macros.h"

namespace baton {

NcclConnection::NcclConnection(ConnectionParts parts, NcclRuntime& nccl)
    : TcpConnection(std::move(parts)),
      nccl_(nccl),
      sends_(peer(), nccl.options(), nccl.version(), node_.layout().bytes_per_block(),
             nccl.driver()),
      receives_(peer(), nccl.options(), nccl.version(), LeastPayloadBytes(node_.layout()),
                node_.layout().bytes_per_block(), nccl.driver()) {}

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

absl::Status NcclConnection::Send(const Frame& frame) {
  if (landing_ && std::holds_alternative<DoneFrame>(frame)) {
    done_.push_back(frame);
    return absl::OkStatus();
  }
  return TcpConnection::Send(frame);
}

absl::Status NcclConnection::EndLanding(int64_t now_us) {
  landing_.reset();
  RETURN_IF_ERROR(Flush(now_us));
  for (const Frame& frame : std::exchange(done_, {})) RETURN_IF_ERROR(Send(frame));
  return absl::OkStatus();
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
    // Landed waits: the slot is in use.
    return LandBatch(now_us) ? EndLanding(now_us) : absl::OkStatus();
  }
  return Flush(now_us);
}

absl::Status NcclConnection::ResumeReading(int64_t now_us) {
  if (landing_ && LandBatch(now_us)) {
    RETURN_IF_ERROR(EndLanding(now_us));
    while (!landing_ && !reports_.empty()) {
      const NcclReport report = std::move(reports_.front());
      reports_.pop_front();
      RETURN_IF_ERROR(HandleReport(report, now_us));
    }
  }
  return TcpConnection::ResumeReading(now_us);
}

PoolWait NcclConnection::waits_for_pool() const {
  if (landing_ || gathering_) return PoolWait::kCopy;
  const NcclSendChannel::Way way = sends_.way();
  const bool held_up = way == NcclSendChannel::Way::kWait ||
                       (way == NcclSendChannel::Way::kBatch && sends_.FreeSlot() == nullptr);
  return waits_to_send() && held_up ? PoolWait::kNothing : TcpConnection::waits_for_pool();
}

void NcclConnection::ReleaseEndedTransfers() {
  TcpConnection::ReleaseEndedTransfers();
  if (landing_ && landing_->copy && !node_.receiver().IsLive(*landing_->placed)) {
    landing_->copy->Abandon();
  }
  for (size_t i = 0; gathering_ && i < gathering_->copies.size(); ++i) {
    if (!node_.sender().IsLive(gathering_->blocks[i])) gathering_->copies[i].Abandon();
  }
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
    node_.moved().Sent(KvMedium::kNccl, dispatch.frame.payload_bytes);
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
      return !gathering_ && sends_.FreeSlot() != nullptr && TcpConnection::HasBlocksToQueue();
    case NcclSendChannel::Way::kStream:
      break;
  }
  return !waits_to_send() && (sends_.HasUnlanded() || TcpConnection::HasBlocksToQueue());
}

absl::Status NcclConnection::QueueBlocks(int64_t now_us) {
  const NcclSendChannel::Way way = sends_.way();
  if (gathering_ &&
      (way != NcclSendChannel::Way::kBatch || sends_.FreeSlot() != gathering_->slot)) {
    TakeBatchBack();
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
  while (sends_.HasUnlanded()) {
    BlockDispatch dispatch = *sends_.TakeUnlanded();
    if (node_.sender().IsLive(dispatch)) return dispatch;
  }
  return TcpConnection::NextToSend();
}

absl::Status NcclConnection::QueueBatches(int64_t now_us) {
  while (sends_.way() == NcclSendChannel::Way::kBatch && sends_.FreeSlot() != nullptr) {
    if (!gathering_) BeginBatch();
    if (!gathering_) return absl::OkStatus();
    const absl::StatusOr<bool> gathered = Gathered();
    if (gathered.ok() && !*gathered) return absl::OkStatus();
    Gathering batch = *std::exchange(gathering_, std::nullopt);
    if (gathered.ok()) {
      Moved(batch.bytes);
      sends_.StartBatch(std::move(batch.blocks), batch.bytes, now_us);
    } else {
      sends_.OnGatherFailed(std::move(batch.blocks), gathered.status());
    }
    RETURN_IF_ERROR(Flush(now_us));
  }
  return absl::OkStatus();
}

void NcclConnection::BeginBatch() {
  Gathering batch{.slot = sends_.FreeSlot()};
  while (batch.failed.ok() && batch.blocks.size() < kMaxBatchBlocks) {
    if (!GatherBlock(batch)) break;
    batch.bytes += batch.blocks.back().frame.payload_bytes;
  }
  if (!batch.blocks.empty()) gathering_ = std::move(batch);
}

bool NcclConnection::GatherBlock(Gathering& batch) {
  const int64_t room = sends_.batch_bytes() - batch.bytes;
  DeviceBlockCopies* const copies = node_.pool().block_copies();
  if (copies == nullptr) {
    std::optional<ReadableBlock> next = TakeReadable(room);
    if (next) GatherHostBlock(batch, *std::move(next));
    return next.has_value();
  }
  if (!copies->HasRoom() || NextBytes().value_or(room + 1) > room) return false;
  // A block may wait for a lease since the time when blocks went within the stream.
  std::optional<BlockDispatch> next = waits_to_send() ? TakeWaiting() : NextToSend();
  if (!next) return false;
  batch.copies.push_back(*copies->Begin(PoolCopies::Direction::kFromPool, next->blocks,
                                        next->frame.valid_tokens, next->frame.layers,
                                        batch.slot + batch.bytes, sends_.keep()));
  batch.blocks.push_back(*std::move(next));
  return true;
}

void NcclConnection::GatherHostBlock(Gathering& batch, ReadableBlock block) {
  BlockDispatch& dispatch = batch.blocks.emplace_back(std::move(block.dispatch));
  const int32_t valid = dispatch.frame.valid_tokens;
  std::byte* const to = batch.slot + batch.bytes;
  batch.failed = node_.pool().memory() == PoolMemory::kHost
                     ? nccl_.Gather(dispatch.blocks, valid, dispatch.frame.layers, to)
                     : nccl_.Gather(block.lease.bytes(), to);
  dispatch.frame.piece_crcs =
      node_.checksums().Of(dispatch.blocks, valid, dispatch.frame.layers, block.lease.bytes());
}

absl::StatusOr<bool> NcclConnection::Gathered() {
  RETURN_IF_ERROR(gathering_->failed);
  for (DeviceBlockCopy& copy : gathering_->copies) {
    ASSIGN_OR_RETURN(const bool ended, copy.Ready());
    if (!ended) return false;
  }
  for (size_t i = 0; i < gathering_->copies.size(); ++i) {
    BlockDispatch& block = gathering_->blocks[i];
    // The blocks of an ended transfer may have been written again, and nothing waits for them.
    if (!node_.sender().IsLive(block)) {
      const std::span<const uint32_t> copied = gathering_->copies[i].checksums();
      block.frame.piece_crcs.assign(copied.begin(), copied.end());
      continue;
    }
    block.frame.piece_crcs =
        node_.checksums().Of(block.blocks, block.frame.valid_tokens, block.frame.layers,
                             gathering_->copies[i].checksums());
  }
  return true;
}

void NcclConnection::TakeBatchBack() {
  for (BlockDispatch& block : gathering_->blocks) sends_.TakeBack(std::move(block));
  gathering_.reset();
}

// Lands blocks in the batch's order, because each transfer expects its blocks in order.
bool NcclConnection::LandBatch(int64_t now_us) {
  while (landing_->next < landing_->arrival.blocks.size()) {
    const BlockFrame& frame = landing_->arrival.blocks[landing_->next];
    if (!LandBlock(frame, now_us)) return false;
    landing_->placed.reset();
    landing_->copy.reset();
    landing_->staged += frame.payload_bytes;
    ++landing_->next;
    Moved(frame.payload_bytes);
  }
  return true;
}

bool NcclConnection::LandBlock(const BlockFrame& frame, int64_t now_us) {
  if (!landing_->placed) landing_->placed = node_.receiver().OnBlock(peer(), frame);
  if (!landing_->placed) return true;
  absl::Status landed;
  if (DeviceBlockCopies* const copies = node_.pool().block_copies(); copies == nullptr) {
    landed = LandHostBlock(frame);
  } else {
    if (!landing_->copy) {
      if (!node_.receiver().IsLive(*landing_->placed)) return true;
      // Block sizes are equal, so one part holds the whole payload.
      landing_->copy =
          copies->Begin(PoolCopies::Direction::kToPool, landing_->placed->parts.front().blocks,
                        frame.valid_tokens, frame.layers, landing_->staged, landing_->arrival.keep);
      if (!landing_->copy) return false;
    }
    const absl::StatusOr<bool> ended = landing_->copy->Ready();
    if (ended.ok() && !*ended) return false;
    landed = ended.ok() ? Verify(landing_->copy->checksums(), frame) : ended.status();
  }
  if (landed.ok()) node_.moved().Received(KvMedium::kNccl, frame.payload_bytes);
  node_.receiver().OnBlockLanded(*landing_->placed, frame.payload_bytes, landed, now_us);
  return true;
}

absl::Status NcclConnection::LandHostBlock(const BlockFrame& frame) {
  const LandingParts& parts = landing_->placed->parts;
  if (node_.pool().memory() == PoolMemory::kDevice) {  // divided among several devices
    ASSIGN_OR_RETURN(
        const std::vector<uint32_t> landed,
        nccl_.Land(landing_->staged, parts.front().blocks, frame.valid_tokens, frame.layers));
    return Verify(landed, frame);
  }
  RETURN_IF_ERROR(
      nccl_.Scatter(landing_->staged, parts.front().blocks, frame.valid_tokens, frame.layers));
  const std::optional<PoolLease> lease =
      node_.pool().Acquire(PoolAccess::kRead, parts, frame.layers);
  return Verify(lease->bytes().Checksums(), frame);
}

absl::Status NcclConnection::Verify(std::span<const uint32_t> landed,
                                    const BlockFrame& frame) const {
  const KvPoolLayout& layout = node_.layout();
  size_t i = 0;
  for (const Piece piece :
       Pieces(layout, landing_->placed->parts.front().blocks.groups(), frame.layers)) {
    if (landed[i] != frame.piece_crcs[i]) {
      return absl::DataLossError(absl::StrFormat(
          "transfer %d block %d %s: CRC32C %08x, the sender's is %08x", frame.transfer_id,
          frame.block, PieceName(layout, piece), landed[i], frame.piece_crcs[i]));
    }
    ++i;
  }
  return absl::OkStatus();
}

}  // namespace baton
