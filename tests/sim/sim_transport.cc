#include "tests/sim/sim_transport.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

constexpr int64_t kRoundDelayUs = 5;  // delay until a woken I/O thread runs
constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

}  // namespace

SimTransport::SimTransport(SimNode& node, SimStreams& streams, std::string address,
                           const TransportOptions& options, Mutant mutant)
    : PostedTransport(options),
      node_(node),
      streams_(streams),
      address_(std::move(address)),
      transfers_(*options.pool, options.fingerprint, options.epoch),
      connections_(transfers_, tcp_, *this, mutant) {
  transfers_.ApplyPostedBeforeAnnouncements([this](int64_t now_us) { ApplyPosted(now_us); });
  streams_.Listen(address_, node_.id(), [this](std::unique_ptr<SimSocket> socket) {
    accepted_.push_back(std::move(socket));
    PostRound();
  });
}

absl::Status SimTransport::CheckAddress(const std::string& address) const {
  if (address.starts_with("tcp:")) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("address \"", address, "\" is no TCP address"));
}

void SimTransport::WakeIoThread() { PostRound(); }

void SimTransport::PostRound() {
  if (round_posted_ || abandoned_) return;
  round_posted_ = true;
  node_.Post(kRoundDelayUs, [this] { Round(); });
}

void SimTransport::ApplyPosted(int64_t now_us) {
  for (TransferCommand& command : TakeCommands()) transfers_.Apply(std::move(command), now_us);
}

// Runs one turn of TcpTransport's loop.
void SimTransport::Round() {
  round_posted_ = false;
  const int64_t now_us = node_.clock().NowUs();
  ApplyPosted(now_us);
  for (auto& socket : std::exchange(accepted_, {})) connections_.Accept(std::move(socket), now_us);
  for (const auto& [peer, ready] : std::exchange(ready_, {})) {
    connections_.OnReady(peer, ready.readable, ready.writable, now_us);
  }
  Publish(connections_.EndRound(now_us));
  SetTimer();
}

void SimTransport::SetTimer() {
  const int64_t next_us = connections_.NextTimerUs(node_.clock().NowUs());
  if (next_us == kNever || (timer_us_ != 0 && timer_us_ <= next_us)) return;
  timer_us_ = next_us;
  node_.Post(std::max<int64_t>(0, next_us - node_.clock().NowUs()), [this, next_us] {
    if (timer_us_ != next_us) return;  // an earlier timer has replaced this one and has run
    timer_us_ = 0;
    PostRound();
  });
}

absl::StatusOr<std::unique_ptr<ByteStream>> SimTransport::Connect(const std::string& address,
                                                                  PeerId) {
  return streams_.Connect(address, node_.id());
}

void SimTransport::Watch(PeerId peer, ByteStream& stream, bool writing) {
  if (abandoned_) return;
  static_cast<SimSocket&>(stream).Watch(
      [this, peer](bool readable, bool writable) {
        ready_[peer].readable |= readable;
        ready_[peer].writable |= writable;
        PostRound();
      },
      writing);
}

void SimTransport::RunIfPosted() {
  if (round_posted_) Round();
}

void SimTransport::Abandon() {
  abandoned_ = true;
  do Round();
  while (transfers_.has_events());  // running copies delay some events
}

}  // namespace baton
