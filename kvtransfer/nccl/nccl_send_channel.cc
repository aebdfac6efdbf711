#include "kvtransfer/nccl/nccl_send_channel.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/check.h"

namespace baton {

NcclSendChannel::~NcclSendChannel() { AbortCommunicator(); }

void NcclSendChannel::AbortCommunicator() {
  if (comm_) driver_.Abort(*comm_);
  comm_.reset();
  slots_.clear();
  keep_.reset();
  peer_ready_ = false;
}

absl::Status NcclSendChannel::OnFrame(const Frame& frame, int64_t now_us) {
  if (const auto* offer = std::get_if<NcclOfferFrame>(&frame)) return OnOffer(*offer, now_us);
  if (std::holds_alternative<NcclReadyFrame>(frame)) return OnReady();
  if (const auto* landed = std::get_if<NcclLandedFrame>(&frame)) {
    return OnLanded(landed->batches, now_us);
  }
  if (const auto* stop = std::get_if<NcclStopFrame>(&frame)) return OnStop(*stop);
  return absl::InvalidArgumentError(
      absl::StrCat("unexpected ", FrameName(frame), " from the receiver"));
}

absl::Status NcclSendChannel::OnOffer(const NcclOfferFrame& offer, int64_t now_us) {
  offered_ = true;
  if (phase_ != Phase::kNone) {
    return absl::InvalidArgumentError("NcclOffer while an earlier offer is open");
  }
  if (offer.batch_bytes < block_bytes_) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "NcclOffer: batch_bytes %d, but a block has %d", offer.batch_bytes, block_bytes_));
  }
  if (offer.nccl_version != nccl_version_) {
    Stop(/*closed=*/true,
         absl::FailedPreconditionError(absl::StrFormat("nccl_version: ours %d, theirs %d",
                                                       nccl_version_, offer.nccl_version)));
    return absl::OkStatus();
  }
  phase_ = Phase::kCreating;
  window_ = std::min(options_.window, offer.window);
  batch_bytes_ = std::min(options_.batch_bytes, offer.batch_bytes);
  next_ = ended_ = landed_ = 0;
  // Blocks wait only for the first communicator: later ones come after a failure.
  patient_until_us_ = attempts_ == 0 ? now_us + options_.patience_ms * 1000 : 0;
  deadline_us_ = now_us + options_.create_timeout_ms * 1000;
  comm_ = NcclCommId{peer_, ++attempts_};
  driver_.Create(*comm_, kNcclSenderRank, "");
  return absl::OkStatus();
}

absl::Status NcclSendChannel::OnReady() {
  if (phase_ == Phase::kOpen || (phase_ == Phase::kCreating && peer_ready_)) {
    return absl::InvalidArgumentError("NcclReady twice");
  }
  if (phase_ != Phase::kCreating && phase_ != Phase::kDraining) {
    return absl::OkStatus();  // aborted meanwhile
  }
  peer_ready_ = true;
  OpenIfBothAreReady();
  return absl::OkStatus();
}

void NcclSendChannel::OpenIfBothAreReady() {
  if (phase_ != Phase::kCreating && phase_ != Phase::kDraining) return;
  if (!peer_ready_ || slots_.empty() || ended_ < next_) return;
  phase_ = Phase::kOpen;
  patient_until_us_ = 0;
}

void NcclSendChannel::OnReport(const NcclReport& report, int64_t) {
  if (!comm_ || report.comm != *comm_) return;  // of an aborted communicator
  switch (report.kind) {
    case NcclReport::Kind::kUniqueId:
      frames_.push_back(NcclJoinFrame{report.unique_id});
      return;
    case NcclReport::Kind::kReady:
      slots_ = report.slots;
      keep_ = report.keep;
      return OpenIfBothAreReady();
    case NcclReport::Kind::kDone:
      ++ended_;
      return OpenIfBothAreReady();
    case NcclReport::Kind::kFailed:
      return Close(report.status);
  }
}

absl::Status NcclSendChannel::OnLanded(uint64_t batches, int64_t now_us) {
  if (phase_ != Phase::kOpen && phase_ != Phase::kStopping) {
    return absl::InvalidArgumentError("NcclLanded while no batch is in flight");
  }
  if (batches <= landed_ || batches > next_) {
    return absl::InvalidArgumentError(
        absl::StrFormat("NcclLanded: batches %d is outside (%d, %d]", batches, landed_, next_));
  }
  Land(batches);
  deadline_us_ = now_us + options_.batch_timeout_ms * 1000;  // the next batch's time begins
  return absl::OkStatus();
}

void NcclSendChannel::Land(uint64_t batches) {
  for (; landed_ < batches; ++landed_) {
    std::vector<BlockDispatch>& blocks = batches_.front().blocks;
    std::move(blocks.begin(), blocks.end(), std::back_inserter(landed_blocks_));
    batches_.pop_front();
  }
}

absl::Status NcclSendChannel::OnStop(const NcclStopFrame& stop) {
  if (phase_ == Phase::kNone) return absl::OkStatus();  // it crossed our own Stop
  if (stop.landed < landed_ || stop.landed > next_) {
    return absl::InvalidArgumentError(
        absl::StrFormat("NcclStop: landed %d is outside [%d, %d]", stop.landed, landed_, next_));
  }
  if (!stop.closed && phase_ != Phase::kStopping) {
    return absl::InvalidArgumentError("temporary NcclStop that the sender did not ask for");
  }
  Land(stop.landed);
  for (Batch& batch : std::exchange(batches_, {})) {
    std::move(batch.blocks.begin(), batch.blocks.end(), std::back_inserter(unlanded_));
  }
  landed_ = next_;
  peer_ready_ = false;
  if (stop.closed || !comm_) {
    if (comm_) FallBack(absl::Status(stop.code, absl::StrCat("receiver: ", stop.reason)));
    AbortCommunicator();
    phase_ = Phase::kNone;
  } else {
    phase_ = Phase::kDraining;
  }
  return absl::OkStatus();
}

void NcclSendChannel::Stop(bool closed, const absl::Status& why) {
  FallBack(why);
  frames_.push_back(NcclStopFrame{
      .closed = closed, .landed = 0, .code = why.code(), .reason = std::string(why.message())});
}

void NcclSendChannel::Close(const absl::Status& why) {
  AbortCommunicator();
  Stop(/*closed=*/true, why);
  // The receiver's answer says which batches landed. Without batches in flight it adds nothing.
  phase_ = batches_.empty() ? Phase::kNone : Phase::kStopping;
}

void NcclSendChannel::OnTimer(int64_t now_us) {
  if (phase_ == Phase::kCreating && now_us >= deadline_us_) {
    return Close(absl::DeadlineExceededError(
        absl::StrFormat("no communicator after %d ms", options_.create_timeout_ms)));
  }
  if (phase_ == Phase::kCreating && patient_until_us_ != 0 && now_us >= patient_until_us_) {
    patient_until_us_ = 0;
    FallBack(absl::DeadlineExceededError(
        absl::StrFormat("no communicator yet after %d ms", options_.patience_ms)));
  }
  if (phase_ == Phase::kOpen && !batches_.empty() && now_us >= deadline_us_) {
    phase_ = Phase::kStopping;
    Stop(/*closed=*/false,
         absl::DeadlineExceededError(absl::StrFormat("batch %d has not landed after %d ms", landed_,
                                                     options_.batch_timeout_ms)));
  }
}

int64_t NcclSendChannel::NextTimerUs() const {
  if (phase_ == Phase::kCreating) {
    return patient_until_us_ != 0 ? std::min(patient_until_us_, deadline_us_) : deadline_us_;
  }
  if (phase_ == Phase::kOpen && !batches_.empty()) return deadline_us_;
  return std::numeric_limits<int64_t>::max();
}

NcclSendChannel::Way NcclSendChannel::way() const {
  switch (phase_) {
    case Phase::kCreating:
      return patient_until_us_ != 0 ? Way::kWait : Way::kStream;
    case Phase::kOpen:
      return unlanded_.empty() ? Way::kBatch : Way::kStream;
    case Phase::kStopping:
      return Way::kWait;
    case Phase::kNone:
    case Phase::kDraining:
      break;
  }
  return Way::kStream;
}

std::byte* NcclSendChannel::FreeSlot() const {
  const auto window = static_cast<uint64_t>(window_);
  if (next_ - landed_ >= window || next_ - ended_ >= window) return nullptr;
  return slots_[next_ % window];
}

void NcclSendChannel::StartBatch(std::vector<BlockDispatch> blocks, int64_t bytes, int64_t now_us) {
  CHECK(way() == Way::kBatch && FreeSlot() != nullptr && bytes <= batch_bytes_);
  if (batches_.empty()) deadline_us_ = now_us + options_.batch_timeout_ms * 1000;
  NcclBatchFrame frame{.sequence = next_, .blocks = {}};
  for (BlockDispatch& dispatch : blocks) {
    frame.blocks.push_back(dispatch.frame);
    dispatch.frame.piece_crcs.clear();  // computed again if it is sent again
  }
  batches_.push_back({std::move(blocks)});
  driver_.Post(*comm_, static_cast<int32_t>(next_ % static_cast<uint64_t>(window_)),
               BatchMessageBytes(bytes));
  ++next_;
  frames_.push_back(std::move(frame));
}

void NcclSendChannel::TakeBack(BlockDispatch block) {
  if (batches_.empty()) {
    unlanded_.push_back(std::move(block));
  } else {
    batches_.push_back({{std::move(block)}});
  }
}

void NcclSendChannel::OnGatherFailed(std::vector<BlockDispatch> blocks, const absl::Status& why) {
  for (BlockDispatch& block : blocks) TakeBack(std::move(block));
  Close(why);
}

std::optional<BlockDispatch> NcclSendChannel::TakeUnlanded() {
  if (unlanded_.empty()) return std::nullopt;
  BlockDispatch dispatch = std::move(unlanded_.front());
  unlanded_.pop_front();
  return dispatch;
}

}  // namespace baton
