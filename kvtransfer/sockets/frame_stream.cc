#include "kvtransfer/sockets/frame_stream.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/status_macros.h"

namespace baton {
namespace {

constexpr size_t kFirstBodyBytes = 16 << 10;
// Frames are joined into one run of bytes up to this size. Many small runs cost the kernel more
// than the copy costs us.
constexpr size_t kJoinedBytes = 16 << 10;

}  // namespace

int FrameReader::Fill(std::span<iovec> out) {
  if (landing_) return landing_->Fill(out);
  if (header_) {
    if (filled_ == body_.size()) {
      body_.resize(std::min<size_t>(header_->body_bytes, std::max(kFirstBodyBytes, 2 * filled_)));
    }
    out[0] = {body_.data() + filled_, body_.size() - filled_};
  } else {
    out[0] = {header_bytes_.data() + filled_, kFrameHeaderBytes - filled_};
  }
  return 1;
}

absl::StatusOr<std::optional<Frame>> FrameReader::Advance(int64_t bytes) {
  if (landing_) {
    landing_->Advance(bytes);
    return std::nullopt;
  }
  filled_ += bytes;
  if (!header_) {
    if (filled_ < kFrameHeaderBytes) return std::nullopt;
    ASSIGN_OR_RETURN(header_, DecodeFrameHeader(header_bytes_));
    if (greeting_ && !IsGreeting(*header_)) {
      return absl::InvalidArgumentError(
          absl::StrFormat("frame of type %d before the greeting ended", header_->type));
    }
    body_.clear();
    filled_ = 0;
  }
  if (filled_ < header_->body_bytes) return std::nullopt;
  absl::StatusOr<Frame> frame = DecodeFrameBody(*header_, body_);
  header_.reset();
  filled_ = 0;
  if (body_.capacity() > (64 << 10))
    // A long manifest must not keep memory in every connection.
    body_ = {};
  RETURN_IF_ERROR(frame.status());
  return std::optional<Frame>(*std::move(frame));
}

void FrameReader::StartPayload(BlockLanding landing) {
  CHECK(!mid_frame());
  landing_ = std::move(landing);
}

std::optional<BlockLanding> FrameReader::TakeLanded() {
  if (!landing_ || landing_->remaining() > 0) return std::nullopt;
  return std::exchange(landing_, std::nullopt);
}

int64_t FrameReader::frame_bytes() const {
  if (landing_) return landing_->remaining();
  return header_ ? header_->body_bytes : kFrameHeaderBytes;
}

absl::Status FrameWriter::Send(const Frame& frame) {
  std::string bytes = EncodeFrame(frame);
  if (queued_bytes_ + bytes.size() > kMaxQueuedBytes) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "peer has not read %d bytes, the limit is %d", queued_bytes_, kMaxQueuedBytes));
  }
  Queue(departure_ ? after_ : queue_, std::move(bytes));
  return absl::OkStatus();
}

void FrameWriter::Queue(std::deque<std::string>& queue, std::string bytes) {
  queued_bytes_ += bytes.size();
  if (!queue.empty() && queue.back().size() + bytes.size() <= kJoinedBytes) {
    queue.back() += bytes;
  } else {
    queue.push_back(std::move(bytes));
  }
}

void FrameWriter::StartBlock(BlockDeparture departure) {
  CHECK(!departure_);
  Queue(queue_, EncodeFrame(departure.dispatch().frame));
  departure_ = std::move(departure);
}

int FrameWriter::Fill(std::span<iovec> out) {
  size_t count = 0;
  for (std::string& bytes : queue_) {
    if (count == out.size()) return static_cast<int>(count);
    const size_t skip = count == 0 ? front_done_ : 0;
    out[count++] = {bytes.data() + skip, bytes.size() - skip};
  }
  if (departure_ && count < out.size()) count += departure_->Fill(out.subspan(count));
  return static_cast<int>(count);
}

std::optional<BlockDispatch> FrameWriter::Advance(int64_t bytes) {
  while (bytes > 0 && !queue_.empty()) {
    const int64_t step =
        std::min<int64_t>(bytes, static_cast<int64_t>(queue_.front().size() - front_done_));
    bytes -= step;
    front_done_ += step;
    if (front_done_ < queue_.front().size()) return std::nullopt;
    queued_bytes_ -= queue_.front().size();
    queue_.pop_front();
    front_done_ = 0;
  }
  if (!departure_) return std::nullopt;
  if (bytes > 0) departure_->Advance(bytes);
  if (!queue_.empty() || departure_->remaining() > 0) return std::nullopt;
  std::optional<BlockDispatch> sent = departure_->dispatch();
  departure_.reset();
  queue_.swap(after_);
  return sent;
}

}  // namespace baton
