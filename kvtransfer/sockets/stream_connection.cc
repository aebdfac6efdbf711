#include "kvtransfer/sockets/stream_connection.h"

#include <algorithm>
#include <cerrno>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "kvtransfer/sockets/tcp_socket.h"

namespace baton {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
// A payload that arrives more slowly than this counts as stalled.
constexpr int64_t kMinBytesPerMs = 1024;

}  // namespace

StreamConnection::StreamConnection(ConnectionParts parts)
    : node_(parts.node),
      peer_(parts.peer),
      socket_(std::move(parts.socket)),
      tls_(std::move(parts.tls)),
      options_(parts.options),
      clock_(parts.clock),
      address_(std::move(parts.address)),
      state_(opened_by_us() ? State::kConnecting : State::kGreeting),
      state_deadline_us_(parts.now_us + 1000 * (opened_by_us() ? options_.connect_timeout_ms
                                                               : options_.handshake_timeout_ms)) {
  reader_.BeginGreeting();
}

absl::Status StreamConnection::ConnectOutcome() const { return ConnectResult(socket_); }

absl::Status StreamConnection::Unexpected(const Frame& frame) const {
  return absl::InvalidArgumentError(
      absl::StrCat("unexpected ", FrameName(frame), " from the sender"));
}

absl::Status StreamConnection::OnPayloadAnswer(Frame frame, int64_t) {
  return absl::InvalidArgumentError(
      absl::StrCat("unexpected ", FrameName(frame), " from the receiver"));
}

int64_t StreamConnection::NextPayloadTimerUs() const { return kNever; }

bool StreamConnection::AwaitsHandshake() const {
  return tls_ != nullptr && !tls_->established() && tls_->wants_input();
}

absl::Status StreamConnection::Broken() const {
  if (tls_ != nullptr && errno == EPROTO) {
    return absl::UnavailableError(absl::StrCat("TLS failed: ", tls_->failure()));
  }
  return SocketError("connection lost");
}

absl::Status StreamConnection::Send(const Frame& frame) { return writer_.Send(frame); }

absl::Status StreamConnection::OnWritable(int64_t now_us) {
  if (state_ == State::kConnecting) {
    RETURN_IF_ERROR(ConnectOutcome());
    state_ = State::kGreeting;
    state_deadline_us_ = now_us + options_.handshake_timeout_ms * 1000;
    RETURN_IF_ERROR(Send(node_.MakeHello(address_)));
  }
  return Pump(now_us);
}

void StreamConnection::StartFrameDeadline(int64_t now_us) {
  const int64_t bytes = reader_.landing() != nullptr ? reader_.frame_bytes() : kMaxManifestBytes;
  frame_deadline_us_ = now_us + (options_.frame_timeout_ms + bytes / kMinBytesPerMs) * 1000;
}

void StreamConnection::StartPayload(BlockLanding landing, int64_t now_us) {
  reader_.StartPayload(std::move(landing));
  StartFrameDeadline(now_us);
}

absl::Status StreamConnection::OnReadable(int64_t now_us) {
  RETURN_IF_ERROR(ResumeReading(now_us));
  TakeLanded(now_us);  // the payload that waited for the pool may have 0 bytes
  iovec buffers[kMaxIovecs];
  turn_bytes_ = 0;
  while (turn_bytes_ < kTurnBytes && state_ != State::kRefused && !ReadingPaused()) {
    const int count = reader_.Fill(buffers);
    const ssize_t got = ReadSome(std::span(buffers, count));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (got < 0) return Broken();
    if (got == 0) return absl::UnavailableError("connection closed by the peer");
    Moved(got);
    last_heard_us_ = now_us;
    const bool was_mid_frame = reader_.mid_frame();
    ASSIGN_OR_RETURN(std::optional<Frame> frame, reader_.Advance(got));
    if (frame) RETURN_IF_ERROR(OnFrame(*std::move(frame), now_us));
    TakeLanded(now_us);
    const bool began = !was_mid_frame || frame.has_value();
    if (!reader_.mid_frame()) {
      frame_deadline_us_ = 0;
    } else if (began) {
      StartFrameDeadline(now_us);
    }
  }
  return absl::OkStatus();
}

void StreamConnection::TakeLanded(int64_t now_us) {
  if (std::optional<BlockLanding> landed = reader_.TakeLanded()) {
    OnLanded(*std::move(landed), now_us);
    frame_deadline_us_ = 0;  // between frames
  }
}

absl::Status StreamConnection::OnFrame(Frame frame, int64_t now_us) {
  if (state_ == State::kGreeting) return OnGreeting(frame, now_us);
  if (std::holds_alternative<PongFrame>(frame)) return absl::OkStatus();
  if (std::holds_alternative<PingFrame>(frame)) {
    if (pong_queued_) return absl::OkStatus();
    pong_queued_ = true;
    return Send(PongFrame{});
  }
  if (opened_by_us() && std::holds_alternative<TakesLayersFrame>(frame)) {
    node_.sender().OnTakesLayers(peer_);
    return absl::OkStatus();
  }
  if (opened_by_us()) {
    const bool payload = IsNcclFrame(frame) || std::holds_alternative<SharedTakenFrame>(frame);
    return payload ? OnPayloadAnswer(std::move(frame), now_us)
                   : node_.OnFrameFromReceiver(peer_, frame, now_us);
  }
  const bool payload = IsNcclFrame(frame) || std::holds_alternative<BlockFrame>(frame) ||
                       std::holds_alternative<SharedPoolFrame>(frame) ||
                       std::holds_alternative<SharedSlotsFrame>(frame) ||
                       std::holds_alternative<SharedBlockFrame>(frame);
  if (payload) return OnPayloadFrame(std::move(frame), now_us);
  RETURN_IF_ERROR(node_.OnFrameFromSender(peer_, link_, frame, now_us));
  known_ = known_ || HasTransfers();
  return absl::OkStatus();
}

absl::Status StreamConnection::OnGreeting(const Frame& frame, int64_t now_us) {
  if (opened_by_us()) {
    const auto* reply = std::get_if<HelloReplyFrame>(&frame);
    if (reply == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("expected HelloReply, got ", FrameName(frame)));
    }
    RETURN_IF_ERROR(TransferNode::CheckHelloReply(*reply));
    state_ = State::kOpen;
    reader_.EndGreeting();
    RETURN_IF_ERROR(OnAccepted());
    node_.sender().OnLinkOpen(address_, peer_, reply->epoch, pulls());
    return absl::OkStatus();
  }
  const auto* hello = std::get_if<HelloFrame>(&frame);
  if (hello == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("expected Hello, got ", FrameName(frame)));
  }
  const HelloReplyFrame reply = node_.AnswerHello(*hello);
  if (reply.accepted) {
    ASSIGN_OR_RETURN(const KvGeometry geometry, GeometryOf(hello->fingerprint));
    ASSIGN_OR_RETURN(const uint32_t version, node_.VersionWith(*hello));
    link_ = {.pulls = pulls(),
             .block_size = geometry.block_size,
             .shares_clock = SharesClock() && version >= kLandedTimeProtocolVersion};
    sender_geometry_ = geometry;
  }
  state_ = reply.accepted ? State::kOpen : State::kRefused;
  reader_.EndGreeting();
  state_deadline_us_ = now_us + options_.handshake_timeout_ms * 1000;
  RETURN_IF_ERROR(Send(reply));
  if (!reply.accepted) return absl::OkStatus();
  RETURN_IF_ERROR(Send(TakesLayersFrame{}));
  return OnGreeted(*hello);
}

absl::Status StreamConnection::Pump(int64_t now_us, int64_t turn_bytes) {
  if (state_ == State::kConnecting) return absl::OkStatus();
  if (tls_ != nullptr && !tls_->established() && tls_->wants_output()) tls_->Handshake();
  iovec buffers[kMaxIovecs];
  turn_limit_ = turn_bytes;
  for (turn_bytes_ = 0; turn_bytes_ < turn_limit_;) {
    if (state_ == State::kOpen) RETURN_IF_ERROR(QueueBlocks(now_us));
    const int count = writer_.Fill(buffers);
    if (count == 0) break;
    const ssize_t sent = WriteSome(std::span(buffers, count));
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return absl::OkStatus();
    if (sent < 0) return Broken();
    Moved(sent);
    if (const std::optional<BlockDispatch> out = writer_.Advance(sent)) {
      node_.sender().OnBlockSent(*out, Now(now_us));
      node_.moved().Sent(KvMedium::kTcp, out->frame.payload_bytes);
    }
    if (writer_.empty()) pong_queued_ = false;
  }
  if (state_ == State::kRefused && writer_.empty()) {
    return absl::FailedPreconditionError("refused in the handshake");
  }
  return absl::OkStatus();
}

bool StreamConnection::WantsToWrite() const {
  if (AwaitsHandshake()) return false;
  if (tls_ != nullptr && !tls_->established() && tls_->wants_output()) return true;
  return state_ == State::kConnecting || !writer_.empty() ||
         (state_ == State::kOpen && HasBlocksToQueue());
}

bool StreamConnection::HasTransfers() const {
  return opened_by_us() ? node_.sender().HasTransfersWith(peer_)
                        : node_.receiver().HasTransfersWith(peer_);
}

// If a ping is very late, this process itself stood still, perhaps with its whole machine. It could
// not hear its peers meanwhile. So this moves the limits by that pause.
void StreamConnection::ForgiveOwnPause(int64_t now_us) {
  const int64_t late_us = now_us - next_ping_us_;
  if (!watching_life_ || late_us < 2 * options_.ping_interval_ms * 1000) return;
  last_heard_us_ = std::min(now_us, last_heard_us_ + late_us);
  if (frame_deadline_us_ != 0) frame_deadline_us_ += late_us;
}

absl::Status StreamConnection::OnTimer(int64_t now_us) {
  ForgiveOwnPause(now_us);
  if (ReadingPaused()) {  // the peer's frames wait unread, so the peer is not silent
    if (frame_deadline_us_ != 0) frame_deadline_us_ += now_us - last_heard_us_;
    last_heard_us_ = now_us;
  }
  if (state_ != State::kOpen) {
    if (now_us < state_deadline_us_) return absl::OkStatus();
    return absl::UnavailableError(state_ == State::kConnecting
                                      ? "the connection was not established in time"
                                      : "the handshake did not finish in time");
  }
  if (frame_deadline_us_ != 0 && now_us >= frame_deadline_us_) {
    return absl::UnavailableError(absl::StrFormat(
        "the peer stalled inside a frame, up to %d bytes are missing", reader_.frame_bytes()));
  }
  RETURN_IF_ERROR(OnPayloadTimer(now_us));
  return WatchLife(now_us);
}

absl::Status StreamConnection::WatchLife(int64_t now_us) {
  if (!HasTransfers()) {
    watching_life_ = false;
    if (!opened_by_us() && now_us - last_heard_us_ >= options_.idle_timeout_ms * 1000) {
      return absl::UnavailableError(
          absl::StrFormat("silent for %d ms without a transfer", options_.idle_timeout_ms));
    }
    return absl::OkStatus();
  }
  if (!watching_life_) {
    watching_life_ = true;
    last_heard_us_ = now_us;
    next_ping_us_ = now_us + options_.ping_interval_ms * 1000;
  }
  if (now_us - last_heard_us_ >= options_.silence_timeout_ms * 1000) {
    return absl::UnavailableError(
        absl::StrFormat("nothing heard from the peer for %d ms", options_.silence_timeout_ms));
  }
  if (now_us < next_ping_us_) return absl::OkStatus();
  next_ping_us_ = now_us + options_.ping_interval_ms * 1000;
  return Send(PingFrame{});
}

int64_t StreamConnection::NextTimerUs() const {
  if (state_ != State::kOpen) return state_deadline_us_;
  int64_t next = NextPayloadTimerUs();
  if (frame_deadline_us_ != 0) next = std::min(next, frame_deadline_us_);
  if (watching_life_) {
    next = std::min({next, next_ping_us_, last_heard_us_ + options_.silence_timeout_ms * 1000});
  } else if (!opened_by_us()) {
    next = std::min(next, last_heard_us_ + options_.idle_timeout_ms * 1000);
  }
  return next;
}

void StreamConnection::Lost(const absl::Status& why) {
  if (opened_by_us()) {
    node_.sender().OnLinkDown(
        address_, absl::Status(why.code(), absl::StrCat(address_, ": ", why.message())));
  } else {
    node_.receiver().OnPeerLost(peer_, why);
  }
}

}  // namespace baton
