#include "tests/sim/sim_stream.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace baton {

// Connection with both ends. End 0 connected, end 1 accepted.
class SimConnection final : public SimLink, public std::enable_shared_from_this<SimConnection> {
 public:
  struct End {
    int32_t node = 0;
    uint64_t incarnation = 0;
    bool connected = false;
    bool closed = false;    // closed by its own process
    bool finished = false;  // the peer closed; `received` holds its last bytes
    absl::Status broken;
    std::string received;   // not yet read
    int64_t under_way = 0;  // bytes sent to the peer and not yet read there
    SimNetwork::Lane lane;  // to the peer
    bool writing = false;
    std::function<void(bool, bool)> ready;
  };

  SimConnection(SimNetwork& network, int64_t window, int64_t segment)
      : network(network), window(window), segment(segment) {}

  End& peer_of(int end) { return ends[static_cast<size_t>(1 - end)]; }
  End& at(int end) { return ends[static_cast<size_t>(end)]; }

  // Reports readiness to the process at `end`, if it is still the incarnation with the socket.
  void Tell(int end, bool readable, bool writable) {
    End& here = at(end);
    SimNode& node = network.node(here.node);
    if (here.closed || !here.ready || node.incarnation() != here.incarnation) return;
    node.Post(0, [self = shared_from_this(), end, readable, writable] {
      End& now = self->at(end);
      if (!now.closed && now.ready) now.ready(readable, writable);
    });
  }
  void Break(int end, const char* why) {
    End& here = at(end);
    if (here.closed || !here.broken.ok()) return;
    here.broken = absl::UnavailableError(why);
    Tell(end, true, true);
  }
  void Receive(int end, std::string bytes) {
    at(end).received += bytes;
    Tell(end, true, false);
  }

  void OnNodeDied(int32_t node) override {
    const int dead = at(0).node == node ? 0 : 1;
    if (at(dead).closed) return;
    at(dead).closed = true;
    network.Deliver(at(dead).lane, node, peer_of(dead).node, 0, [self = shared_from_this(), dead] {
      self->Break(1 - dead, "connection lost: Connection reset by peer");
    });
  }
  void OnReset() override {
    Break(0, "connection lost: Connection reset by peer");
    Break(1, "connection lost: Connection reset by peer");
  }
  int32_t server() const override { return kNone; }
  bool IsServedBy(int32_t) const override { return false; }

  SimNetwork& network;
  const int64_t window;
  const int64_t segment;
  std::array<End, 2> ends;
};

namespace {

std::string Gather(std::span<const iovec> buffers, int64_t most) {
  std::string bytes;
  for (const iovec& buffer : buffers) {
    const auto room = static_cast<size_t>(most) - bytes.size();
    bytes.append(static_cast<const char*>(buffer.iov_base), std::min(room, buffer.iov_len));
  }
  return bytes;
}

}  // namespace

SimSocket::~SimSocket() {
  SimConnection::End& here = connection_->at(end_);
  if (here.closed) return;  // closed when its process died
  here.closed = true;
  here.ready = nullptr;
  connection_->network.Deliver(here.lane, here.node, connection_->peer_of(end_).node, 0,
                               [connection = connection_, end = 1 - end_] {
                                 connection->at(end).finished = true;
                                 connection->Tell(end, true, false);
                               });
}

int32_t SimSocket::peer_node() const { return connection_->peer_of(end_).node; }

absl::Status SimSocket::ConnectResult() { return connection_->at(end_).broken; }

absl::StatusOr<int64_t> SimSocket::Read(std::span<const iovec> buffers) {
  SimConnection::End& here = connection_->at(end_);
  if (!here.broken.ok()) return here.broken;
  if (here.received.empty()) {
    if (here.finished) return absl::UnavailableError("connection closed by the peer");
    return 0;
  }
  size_t moved = 0;
  for (const iovec& buffer : buffers) {
    const size_t take = std::min(buffer.iov_len, here.received.size() - moved);
    std::memcpy(buffer.iov_base, here.received.data() + moved, take);
    moved += take;
  }
  here.received.erase(0, moved);
  SimConnection::End& peer = connection_->peer_of(end_);
  peer.under_way -= static_cast<int64_t>(moved);
  if (peer.writing) connection_->Tell(1 - end_, false, true);
  return static_cast<int64_t>(moved);
}

absl::StatusOr<int64_t> SimSocket::Write(std::span<const iovec> buffers) {
  SimConnection::End& here = connection_->at(end_);
  if (!here.broken.ok()) return here.broken;
  const int64_t room = std::min(connection_->window - here.under_way, connection_->segment);
  if (room <= 0) return 0;
  std::string bytes = Gather(buffers, room);
  const auto size = static_cast<int64_t>(bytes.size());
  here.under_way += size;
  const int32_t to = connection_->peer_of(end_).node;
  const Verdict verdict = connection_->network.Judge(MessageKind::kStream, here.node, to);
  switch (verdict.action) {
    case Verdict::Action::kFlip:
      bytes[verdict.random % bytes.size()] ^= static_cast<char>(1 << (verdict.random >> 32) % 8);
      break;
    case Verdict::Action::kTruncate:
      bytes.resize(verdict.random % bytes.size());
      [[fallthrough]];
    case Verdict::Action::kReset:
      connection_->network.queue().In(1000, [connection = connection_] { connection->OnReset(); });
      break;
    case Verdict::Action::kPass:
    case Verdict::Action::kDuplicate:
      break;
  }
  connection_->network.Deliver(
      here.lane, here.node, to, verdict.delay_us,
      [connection = connection_, end = 1 - end_, bytes = std::move(bytes)]() mutable {
        connection->Receive(end, std::move(bytes));
      });
  return size;
}

void SimSocket::Watch(std::function<void(bool, bool)> ready, bool writing) {
  SimConnection::End& here = connection_->at(end_);
  const bool began = here.ready == nullptr;
  here.ready = std::move(ready);
  const bool room = here.connected && here.under_way < connection_->window;
  const bool wants_now = writing && room;
  here.writing = writing;
  const bool readable = began && (!here.received.empty() || here.finished || !here.broken.ok());
  if (wants_now || readable) connection_->Tell(end_, readable, wants_now);
}

void SimStreams::Listen(const std::string& address, int32_t node, Accept accept) {
  homes_[address] = node;
  listeners_[address] = {node, network_.node(node).incarnation(), std::move(accept)};
}

void SimStreams::NodeDied(int32_t node) {
  std::erase_if(listeners_, [node](const auto& entry) { return entry.second.node == node; });
}

absl::StatusOr<std::unique_ptr<SimSocket>> SimStreams::Connect(const std::string& address,
                                                               int32_t node) {
  // No process has ever listened at this address, so there is no node to route to.
  const auto home = homes_.find(address);
  if (home == homes_.end()) return absl::UnavailableError("connect: Connection refused");
  auto connection =
      std::make_shared<SimConnection>(network_, sizes_.Between(128, sizes_.OneIn(4) ? 512 : 8192),
                                      sizes_.Between(48, sizes_.OneIn(4) ? 128 : 2048));
  SimConnection::End& here = connection->at(0);
  here.node = node;
  here.incarnation = network_.node(node).incarnation();
  connection->at(1).node = home->second;
  network_.AddLink(node, home->second, connection);
  network_.Deliver(here.lane, node, home->second, 0,
                   [this, address, connection] { Arrive(address, connection); });
  return std::make_unique<SimSocket>(connection, 0);
}

// The listener's kernel accepts, even while its process is paused.
void SimStreams::Arrive(const std::string& address,
                        const std::shared_ptr<SimConnection>& connection) {
  SimConnection::End& there = connection->at(1);
  const auto found = listeners_.find(address);
  const bool listens = found != listeners_.end();
  network_.Deliver(there.lane, there.node, connection->at(0).node, 0, [connection, listens] {
    if (!listens) return connection->Break(0, "connect: Connection refused");
    connection->at(0).connected = true;
    connection->Tell(0, false, true);
  });
  if (!listens) return;
  there.incarnation = found->second.incarnation;
  there.connected = true;
  network_.node(there.node).Post(0, [accept = found->second.accept, connection] {
    accept(std::make_unique<SimSocket>(connection, 1));
  });
}

}  // namespace baton
