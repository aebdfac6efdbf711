#include "tests/sim/sim_transport.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/sim/streamed_connection.h"

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
      mutant_(mutant),
      rounds_(options, tcp_, *this, /*clock=*/nullptr) {
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

void SimTransport::Round() {
  round_posted_ = false;
  rounds_.Round(node_.clock().NowUs());
  SetTimer();
}

void SimTransport::DeliverReadiness(int64_t now_us) {
  for (std::unique_ptr<SimSocket>& socket : std::exchange(accepted_, {})) {
    rounds_.Accept(
        [&](ConnectionParts parts) {
          return std::make_unique<StreamedConnection>(std::move(parts), std::move(socket), mutant_);
        },
        now_us);
  }
  for (const auto& [peer, ready] : std::exchange(ready_, {})) {
    rounds_.OnReady(peer, ready.readable, ready.writable, now_us);
  }
}

void SimTransport::SetTimer() {
  const int64_t next_us = rounds_.NextRoundUs(node_.clock().NowUs());
  if (next_us == kNever || (timer_us_ != 0 && timer_us_ <= next_us)) return;
  timer_us_ = next_us;
  node_.Post(std::max<int64_t>(0, next_us - node_.clock().NowUs()), [this, next_us] {
    if (timer_us_ != next_us) return;  // an earlier timer has replaced this one and has run
    timer_us_ = 0;
    PostRound();
  });
}

absl::StatusOr<std::unique_ptr<StreamConnection>> SimTransport::Connect(const std::string& way,
                                                                        ConnectionParts parts) {
  absl::StatusOr<std::unique_ptr<SimSocket>> socket = streams_.Connect(way, node_.id());
  if (!socket.ok()) return socket.status();
  return std::make_unique<StreamedConnection>(std::move(parts), *std::move(socket), mutant_);
}

void SimTransport::Watch(StreamConnection& connection) {
  if (abandoned_) return;
  const auto on_ready = [this, peer = connection.peer()](bool readable, bool writable) {
    ready_[peer].readable |= readable;
    ready_[peer].writable |= writable;
    PostRound();
  };
  static_cast<StreamedConnection&>(connection).stream().Watch(on_ready, connection.WantsToWrite());
}

void SimTransport::RunIfPosted() {
  if (round_posted_) Round();
}

void SimTransport::Abandon() {
  abandoned_ = true;
  do Round();
  while (rounds_.node().has_events());  // running copies delay some events
}

}  // namespace baton
