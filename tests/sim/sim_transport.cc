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

TcpOptions OptionsFor(Mutant mutant) {
  TcpOptions options;
  if (mutant == Mutant::kLostPeerFoundLate) options.silence_timeout_ms = 2400;
  return options;
}

}  // namespace

SimTransport::SimTransport(SimNode& node, SimStreams& streams, std::string address,
                           const TransportOptions& options, Mutant mutant)
    : PostedTransport(options),
      node_(node),
      streams_(streams),
      address_(std::move(address)),
      mutant_(mutant),
      tcp_(OptionsFor(mutant)),
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
  NoteBusyConnections();
  SetTimer();
}

void SimTransport::NoteBusyConnections() {
  const TransferNode& node = rounds_.node();
  for (auto& [id, peer] : peers_) {
    const StreamConnection* const connection = rounds_.Find(id);
    const bool busy =
        connection != nullptr && (!connection->open() || node.sender().HasTransfersWith(id) ||
                                  node.receiver().HasTransfersWith(id));
    if (!busy) {
      peer.busy_since_us = -1;
    } else if (peer.busy_since_us < 0) {
      peer.busy_since_us = node_.queue().now_us();
    }
  }
}

std::vector<SimTransport::Busy> SimTransport::BusyConnections() const {
  std::vector<Busy> busy;
  for (const auto& [id, peer] : peers_) {
    if (peer.busy_since_us >= 0) busy.push_back({peer.node, peer.busy_since_us});
  }
  return busy;
}

void SimTransport::DeliverReadiness(int64_t now_us) {
  for (std::unique_ptr<SimSocket>& socket : std::exchange(accepted_, {})) {
    rounds_.Accept(
        [&](ConnectionParts parts) {
          peers_[parts.peer].node = socket->peer_node();
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
  if (next_us == kNever) return;
  // By the queue's time: if the clock jumps, the wait until the next deadline gets shorter.
  const int64_t wait_us = std::max<int64_t>(0, next_us - node_.clock().NowUs());
  const int64_t at_us = node_.queue().now_us() + wait_us;
  if (timer_us_ != 0 && timer_us_ <= at_us) return;
  timer_us_ = at_us;
  node_.Post(wait_us, [this, at_us] {
    if (timer_us_ != at_us) return;  // an earlier timer has replaced this one and has run
    timer_us_ = 0;
    PostRound();
  });
}

absl::StatusOr<std::unique_ptr<StreamConnection>> SimTransport::Connect(const std::string& way,
                                                                        ConnectionParts parts) {
  absl::StatusOr<std::unique_ptr<SimSocket>> socket = streams_.Connect(way, node_.id());
  if (!socket.ok()) return socket.status();
  peers_[parts.peer].node = (*socket)->peer_node();
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
