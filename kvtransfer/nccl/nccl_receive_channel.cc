#include "kvtransfer/nccl/nccl_receive_channel.h"

#include <algorithm>
#include <limits>
#include <string>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/status_macros.h"

namespace baton {

NcclReceiveChannel::~NcclReceiveChannel() { AbortCommunicator(); }

void NcclReceiveChannel::AbortCommunicator() {
  if (comm_) driver_.Abort(*comm_);
  comm_.reset();
  slots_.clear();
  keep_.reset();
  batches_.clear();
}

void NcclReceiveChannel::Offer() {
  phase_ = Phase::kOffered;
  retry_us_ = 0;
  frames_.push_back(NcclOfferFrame{.nccl_version = nccl_version_,
                                   .window = options_.window,
                                   .batch_bytes = options_.batch_bytes});
}

absl::Status NcclReceiveChannel::OnFrame(Frame frame, int64_t now_us) {
  if (const auto* join = std::get_if<NcclJoinFrame>(&frame)) return OnJoin(*join, now_us);
  if (auto* batch = std::get_if<NcclBatchFrame>(&frame)) return OnBatch(std::move(*batch));
  if (const auto* stop = std::get_if<NcclStopFrame>(&frame)) return OnStop(*stop, now_us);
  return absl::InvalidArgumentError(
      absl::StrCat("unexpected ", FrameName(frame), " from the sender"));
}

absl::Status NcclReceiveChannel::OnJoin(const NcclJoinFrame& join, int64_t now_us) {
  if (phase_ != Phase::kOffered) {
    return absl::InvalidArgumentError("NcclJoin without an open offer");
  }
  phase_ = Phase::kCreating;
  gave_up_ = false;
  received_ = ended_ = landed_ = 0;
  deadline_us_ = now_us + options_.create_timeout_ms * 1000;
  comm_ = NcclCommId{peer_, ++attempts_};
  driver_.Create(*comm_, kNcclReceiverRank, join.unique_id);
  return absl::OkStatus();
}

absl::Status NcclReceiveChannel::OnBatch(NcclBatchFrame batch) {
  if (gave_up_) return absl::OkStatus();
  if (phase_ != Phase::kOpen) {
    return absl::InvalidArgumentError("NcclBatch before the communicator is ready");
  }
  if (batch.sequence != received_) {
    return absl::InvalidArgumentError(
        absl::StrFormat("NcclBatch: sequence %d, expected %d", batch.sequence, received_));
  }
  const auto window = static_cast<uint64_t>(options_.window);
  if (received_ - landed_ >= window) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "NcclBatch: %d batches are in flight, which is the limit", received_ - landed_));
  }
  ASSIGN_OR_RETURN(const int64_t bytes, BatchBytes(batch));
  driver_.Post(*comm_, static_cast<int32_t>(received_ % window), bytes);
  ++received_;
  batches_.push_back({.blocks = std::move(batch.blocks)});
  return absl::OkStatus();
}

absl::StatusOr<int64_t> NcclReceiveChannel::BatchBytes(const NcclBatchFrame& batch) const {
  int64_t bytes = 0;
  for (const BlockFrame& block : batch.blocks) {
    if (block.payload_bytes < least_bytes_ || block.payload_bytes > block_bytes_) {
      return absl::InvalidArgumentError(
          absl::StrFormat("NcclBatch: payload_bytes %d of block %d is outside [%d, %d]",
                          block.payload_bytes, block.block, least_bytes_, block_bytes_));
    }
    bytes += block.payload_bytes;
  }
  if (batch.blocks.empty() || bytes > options_.batch_bytes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("NcclBatch: %d blocks with %d bytes, limit %d", batch.blocks.size(), bytes,
                        options_.batch_bytes));
  }
  return BatchMessageBytes(bytes);
}

absl::Status NcclReceiveChannel::OnStop(const NcclStopFrame& stop, int64_t now_us) {
  const absl::Status why(stop.code, absl::StrCat("sender: ", stop.reason));
  if (phase_ == Phase::kNone) return absl::OkStatus();  // it crossed our own Stop
  if (phase_ == Phase::kOffered && !gave_up_) {         // refused, or aborted before Join
    phase_ = Phase::kNone;
    fallbacks_.push_back(why);
    return absl::OkStatus();
  }
  if (phase_ == Phase::kOffered) return absl::OkStatus();  // about the previous one
  if (stop.closed) {
    Close(why, now_us);
    return absl::OkStatus();
  }
  if (phase_ != Phase::kOpen) {
    return absl::InvalidArgumentError("temporary NcclStop without an open communicator");
  }
  fallbacks_.push_back(why);
  SendStop(/*closed=*/false, stop.code, stop.reason);
  landed_ = received_;
  for (Batch& batch : batches_) batch.wanted = false;
  phase_ = Phase::kDraining;
  if (batches_.empty()) {
    phase_ = Phase::kOpen;
    frames_.push_back(NcclReadyFrame{});
  }
  return absl::OkStatus();
}

std::optional<NcclReceiveChannel::Arrival> NcclReceiveChannel::OnReport(const NcclReport& report,
                                                                        int64_t now_us) {
  if (!comm_ || report.comm != *comm_) return std::nullopt;  // of an aborted communicator
  switch (report.kind) {
    case NcclReport::Kind::kReady:
      slots_ = report.slots;
      keep_ = report.keep;
      phase_ = Phase::kOpen;
      frames_.push_back(NcclReadyFrame{});
      return std::nullopt;
    case NcclReport::Kind::kDone:
      return OnDone();
    case NcclReport::Kind::kFailed:
      Close(report.status, now_us);
      return std::nullopt;
    case NcclReport::Kind::kUniqueId:
      break;  // only for senders
  }
  return std::nullopt;
}

std::optional<NcclReceiveChannel::Arrival> NcclReceiveChannel::OnDone() {
  CHECK(!batches_.empty());
  Batch batch = std::move(batches_.front());
  batches_.pop_front();
  const auto slot = static_cast<size_t>(ended_ % static_cast<uint64_t>(options_.window));
  ++ended_;
  if (batch.wanted) {
    landed_ = ended_;
    frames_.push_back(NcclLandedFrame{landed_});
    return Arrival{std::move(batch.blocks), slots_[slot], keep_};
  }
  if (batches_.empty() && phase_ == Phase::kDraining) {
    phase_ = Phase::kOpen;
    frames_.push_back(NcclReadyFrame{});
  }
  return std::nullopt;
}

void NcclReceiveChannel::Close(const absl::Status& why, int64_t now_us) {
  AbortCommunicator();
  fallbacks_.push_back(why);
  SendStop(/*closed=*/true, why.code(), std::string(why.message()));
  phase_ = Phase::kNone;
  gave_up_ = true;
  retry_us_ = now_us + options_.retry_ms * 1000;
}

void NcclReceiveChannel::SendStop(bool closed, absl::StatusCode code, std::string reason) {
  frames_.push_back(NcclStopFrame{
      .closed = closed, .landed = landed_, .code = code, .reason = std::move(reason)});
}

void NcclReceiveChannel::OnTimer(int64_t now_us) {
  if (phase_ == Phase::kCreating && now_us >= deadline_us_) {
    return Close(absl::DeadlineExceededError(
                     absl::StrFormat("no communicator after %d ms", options_.create_timeout_ms)),
                 now_us);
  }
  if (phase_ == Phase::kNone && retry_us_ != 0 && now_us >= retry_us_) Offer();
}

int64_t NcclReceiveChannel::NextTimerUs() const {
  if (phase_ == Phase::kCreating) return deadline_us_;
  if (phase_ == Phase::kNone && retry_us_ != 0) return retry_us_;
  return std::numeric_limits<int64_t>::max();
}

}  // namespace baton
