// Both ends of every transfer in one process. A network object has one thread that plays all wires.
// Frames are passed as values. Blocks are copied by memcpy between leases of the two pools.
// Sessions, handshake and checks are the same as over TCP.

#include "kvtransfer/loopback/loopback_transport.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/status_macros.h"
#include "kvtransfer/pool/block_landing.h"
#include "kvtransfer/pool/lease_request.h"
#include "kvtransfer/protocol/posted_transport.h"
#include "kvtransfer/protocol/transfer_node.h"
#include "kvtransfer/transport.h"

namespace baton {
namespace {

constexpr char kLoopbackScheme[] = "loopback:";

class LoopbackTransport;

// Progress of one block in flight.
struct BlockMove {
  explicit BlockMove(BlockDispatch next)
      : dispatch(std::move(next)),
        source(PoolAccess::kRead, LeadingTokens(dispatch.blocks, dispatch.frame.valid_tokens),
               dispatch.frame.layers) {}

  BlockDispatch dispatch;
  LeaseRequest source;
  // Set once the source's bytes can be read and the receiver has placed the block.
  std::optional<BlockDeparture> departure;
  std::optional<BlockPlacement> placement;
  std::optional<LeaseRequest> target;
  // Set once its bytes are in the target.
  std::optional<BlockLanding> landing;
};

}  // namespace

// One thread serves all transports. Lock order: the network's mutex, then a transport's mutex. The
// thread holds the network's mutex during a round (at most a few blocks). Only creating, destroying
// and waking a transport wait for it.
class LoopbackNetwork {
 public:
  LoopbackNetwork() : thread_([this](const std::stop_token& stop) { Run(stop); }) {}
  ~LoopbackNetwork() {
    thread_.request_stop();
    Wake();
  }

  // AlreadyExists if the name is in use.
  absl::Status Add(LoopbackTransport* transport);
  // When it returns, the network's thread no longer uses the transport.
  void Remove(LoopbackTransport* transport);
  void Wake();

 private:
  // One end of a link. A transport that sends to itself holds both ends.
  struct End {
    LoopbackTransport* transport;
    PeerId other;
    bool sends;
    SenderLink from = {};                          // set at a receiving end
    std::optional<BlockMove> move = std::nullopt;  // set at a sending end
  };

  void Run(const std::stop_token& stop);
  // Each returns true if anything happened.
  bool ApplyCommands(int64_t now_us);
  bool MakeLinks();
  bool DeliverFrames(int64_t now_us);
  bool MoveBlocks(int64_t now_us);
  // Advances a move as far as possible. Returns true if it has ended.
  bool Advance(End& from, TransferNode& to, int64_t now_us);
  absl::StatusOr<bool> Depart(BlockMove& move, TransferNode& from);
  absl::StatusOr<bool> Land(BlockMove& move, TransferNode& to);
  // Releases the leases of transfers that have ended.
  void ReleaseEndedTransfers();
  bool PublishEvents();
  void Connect(LoopbackTransport& sender, const std::string& address);
  void Disconnect(PeerId sending, const absl::Status& why);
  int64_t NextDeadlineUs();

  SystemClock clock_;
  std::mutex mutex_;
  std::map<std::string, LoopbackTransport*> transports_;  // by address; guarded by mutex_
  std::map<PeerId, End> ends_;                            // guarded by mutex_
  int64_t copy_wait_since_us_ = 0;                        // guarded by mutex_
  PoolWait pool_wait_ = PoolWait::kNothing;  // of this round's moves and events; guarded by mutex_
  uint64_t next_peer_ = 1;                   // guarded by mutex_

  std::mutex wake_mutex_;
  std::condition_variable wake_;
  bool woken_ = false;  // guarded by wake_mutex_
  std::jthread thread_;
};

namespace {

class LoopbackTransport final : public PostedTransport {
 public:
  LoopbackTransport(std::shared_ptr<LoopbackNetwork> network, const std::string& name,
                    const TransportOptions& options)
      : PostedTransport(options),
        network_(std::move(network)),
        address_(absl::StrCat(kLoopbackScheme, name)),
        node_(*options.pool, options.fingerprint, options.epoch) {
    node_.ApplyPostedBeforeAnnouncements([this](int64_t now_us) {
      for (TransferCommand& command : TakeCommands()) node_.Apply(std::move(command), now_us);
    });
  }
  ~LoopbackTransport() override { network_->Remove(this); }

  std::string address() const override { return address_; }

  // For the network's thread only.
  TransferNode& node() { return node_; }
  MovedKvBytes::Totals moved_bytes() const override { return node_.moved().Read(); }
  using PostedTransport::Publish;
  using PostedTransport::TakeCommands;

 protected:
  absl::Status CheckAddress(const std::string& address) const override {
    if (address.starts_with(kLoopbackScheme)) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("address \"", address, "\" does not start with ", kLoopbackScheme));
  }
  void WakeIoThread() override { network_->Wake(); }

 private:
  const std::shared_ptr<LoopbackNetwork> network_;
  const std::string address_;
  TransferNode node_;
};

// Copies the whole payload.
void CopyBlock(BlockDeparture& from, BlockLanding& to) {
  iovec source[kMaxIovecs];
  iovec target[kMaxIovecs];
  while (from.remaining() > 0) {
    from.Fill(source);
    to.Fill(target);
    const size_t bytes = std::min(source[0].iov_len, target[0].iov_len);
    std::memcpy(target[0].iov_base, source[0].iov_base, bytes);
    from.Advance(static_cast<int64_t>(bytes));
    to.Advance(static_cast<int64_t>(bytes));
  }
}

}  // namespace

absl::Status LoopbackNetwork::Add(LoopbackTransport* transport) {
  const std::lock_guard lock(mutex_);
  if (!transports_.emplace(transport->address(), transport).second) {
    return absl::AlreadyExistsError(absl::StrCat(transport->address(), " is already in use"));
  }
  return absl::OkStatus();
}

void LoopbackNetwork::Remove(LoopbackTransport* transport) {
  const std::lock_guard lock(mutex_);
  const auto it = transports_.find(transport->address());
  if (it == transports_.end() || it->second != transport) return;
  std::set<PeerId> lost;  // their sending ends
  for (const auto& [peer, end] : ends_) {
    if (end.transport == transport) lost.insert(end.sends ? peer : end.other);
  }
  const absl::Status gone = absl::UnavailableError(absl::StrCat(transport->address(), " is gone"));
  for (const PeerId peer : lost) Disconnect(peer, gone);
  transports_.erase(it);
  Wake();
}

void LoopbackNetwork::Wake() {
  {
    const std::lock_guard lock(wake_mutex_);
    woken_ = true;
  }
  wake_.notify_one();
}

void LoopbackNetwork::Run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    bool busy;
    int64_t wait_us;
    bool yields = false;
    {
      const std::lock_guard lock(mutex_);
      const int64_t now_us = clock_.NowUs();
      pool_wait_ = PoolWait::kNothing;
      busy = ApplyCommands(now_us);
      for (const auto& [address, transport] : transports_) transport->node().OnTimer(now_us);
      busy |= MakeLinks();
      busy |= DeliverFrames(now_us);
      busy |= MoveBlocks(now_us);
      busy |= PublishEvents();
      wait_us = std::min<int64_t>(NextDeadlineUs() - now_us, 1'000'000);
      if (pool_wait_ == PoolWait::kCopy) wait_us = 0;
      if (pool_wait_ != PoolWait::kCopy || busy) copy_wait_since_us_ = now_us;
      yields = wait_us == 0 && now_us - copy_wait_since_us_ > kYieldAfterUs;
      if (pool_wait_ == PoolWait::kBuffer) wait_us = std::min(wait_us, kBufferRetryUs);
    }
    if (yields) sched_yield();
    std::unique_lock lock(wake_mutex_);
    if (!busy && wait_us > 0) {
      wake_.wait_for(lock, std::chrono::microseconds(wait_us), [this] { return woken_; });
    }
    woken_ = false;
  }
}

bool LoopbackNetwork::ApplyCommands(int64_t now_us) {
  bool any = false;
  for (const auto& [address, transport] : transports_) {
    for (TransferCommand& command : transport->TakeCommands()) {
      transport->node().Apply(std::move(command), now_us);
      any = true;
    }
  }
  return any;
}

bool LoopbackNetwork::MakeLinks() {
  bool any = false;
  for (const auto& [address, transport] : transports_) {
    for (const std::string& target : transport->node().sender().TakeConnects()) {
      Connect(*transport, target);
      any = true;
    }
  }
  return any;
}

void LoopbackNetwork::Connect(LoopbackTransport& sender, const std::string& address) {
  const auto receiver = transports_.find(address);
  if (receiver == transports_.end()) {
    sender.node().sender().OnLinkDown(
        address, absl::UnavailableError(absl::StrCat("nothing listens at ", address)));
    return;
  }
  const HelloFrame hello = sender.node().MakeHello(sender.address());
  const HelloReplyFrame reply = receiver->second->node().AnswerHello(hello);
  const absl::Status accepted = TransferNode::CheckHelloReply(reply);
  if (!accepted.ok()) {
    sender.node().sender().OnLinkDown(address, accepted);
    return;
  }
  const PeerId sending(next_peer_++);
  const PeerId receiving(next_peer_++);
  ends_.emplace(sending, End{&sender, receiving, true});
  ends_.emplace(receiving, End{receiver->second, sending, false,
                               SenderLink{.block_size = hello.fingerprint.block_size}});
  sender.node().sender().OnLinkOpen(address, sending, reply.epoch);
  sender.node().sender().OnTakesLayers(sending);
}

void LoopbackNetwork::Disconnect(PeerId sending, const absl::Status& why) {
  const PeerId receiving = ends_.at(sending).other;
  LoopbackTransport* const sender = ends_.at(sending).transport;
  LoopbackTransport* const receiver = ends_.at(receiving).transport;
  ends_.erase(sending);
  ends_.erase(receiving);
  sender->node().sender().OnLinkDown(receiver->address(), why);
  receiver->node().receiver().OnPeerLost(receiving, why);
}

bool LoopbackNetwork::DeliverFrames(int64_t now_us) {
  bool any = false;
  for (const auto& [address, transport] : transports_) {
    for (const auto& [peer, frame] : transport->node().TakeFrames(now_us)) {
      any = true;
      const auto from = ends_.find(peer);
      if (from == ends_.end()) continue;
      const PeerId other = from->second.other;
      const End& to = ends_.at(other);
      TransferNode& node = to.transport->node();
      const absl::Status status = from->second.sends
                                      ? node.OnFrameFromSender(other, to.from, frame, now_us)
                                      : node.OnFrameFromReceiver(other, frame, now_us);
      CHECK(status.ok()) << status;  // our own sessions send no unexpected frames
    }
  }
  return any;
}

bool LoopbackNetwork::MoveBlocks(int64_t now_us) {
  bool any = false;
  for (auto& [peer, end] : ends_) {
    if (!end.sends) continue;
    if (!end.move) {
      std::optional<BlockDispatch> next = end.transport->node().sender().NextBlock(peer);
      if (!next) continue;
      end.move.emplace(*std::move(next));
    }
    if (!Advance(end, ends_.at(end.other).transport->node(), now_us)) continue;
    end.move.reset();
    any = true;
  }
  return any;
}

// Returns true once the block's bytes can be read.
absl::StatusOr<bool> LoopbackNetwork::Depart(BlockMove& move, TransferNode& from) {
  if (move.departure) return true;
  const absl::StatusOr<bool> ready = move.source.Ask(from.pool());
  if (!ready.ok()) return ready.status();
  if (!*ready) {
    pool_wait_ = std::max(pool_wait_, move.source.waits_for());
    return false;
  }
  PoolLease lease = move.source.Take();
  const BlockFrame& frame = move.dispatch.frame;
  std::vector<uint32_t> crcs =
      from.checksums().Of(move.dispatch.blocks, frame.valid_tokens, frame.layers, lease.bytes());
  move.departure.emplace(std::move(lease), move.dispatch, std::move(crcs));
  return true;
}

// Returns true once the receiver's pool has the bytes. An error means that they were wrong or could
// not be stored.
absl::StatusOr<bool> LoopbackNetwork::Land(BlockMove& move, TransferNode& to) {
  if (!move.landing) {
    const absl::StatusOr<bool> ready = move.target->Ask(to.pool());
    if (!ready.ok()) return ready.status();
    if (!*ready) {
      pool_wait_ = std::max(pool_wait_, move.target->waits_for());
      return false;
    }
    move.landing.emplace(move.target->Take(), *move.placement, move.departure->dispatch().frame);
    CopyBlock(*move.departure, *move.landing);
    RETURN_IF_ERROR(move.landing->verified());
    move.landing->Store();
  }
  const absl::StatusOr<bool> stored = move.landing->Stored();
  if (stored.ok() && !*stored) pool_wait_ = std::max(pool_wait_, PoolWait::kCopy);
  return stored;
}

bool LoopbackNetwork::Advance(End& from, TransferNode& to, int64_t now_us) {
  BlockMove& move = *from.move;
  TransferNode& sender = from.transport->node();
  const absl::StatusOr<bool> departed = Depart(move, sender);
  if (!departed.ok()) {
    sender.sender().OnBlockUnreadable(move.dispatch, departed.status());
    return true;
  }
  if (!*departed) return false;
  if (!move.placement) {
    const BlockFrame& frame = move.departure->dispatch().frame;
    move.placement = to.receiver().OnBlock(from.other, frame);
    if (!move.placement) return true;  // ended at the receiver; its Abort is in flight
    move.target.emplace(PoolAccess::kLand, move.placement->parts, frame.layers);
  }
  const absl::StatusOr<bool> landed = Land(move, to);
  if (landed.ok() && !*landed) return false;
  const int64_t bytes = move.dispatch.frame.payload_bytes;
  sender.sender().OnBlockSent(move.departure->dispatch(), now_us);
  sender.moved().Sent(KvMedium::kLoopback, bytes);
  if (landed.ok()) to.moved().Received(KvMedium::kLoopback, bytes);
  to.receiver().OnBlockLanded(*move.placement, move.dispatch.frame.payload_bytes, landed.status(),
                              now_us);
  return true;
}

void LoopbackNetwork::ReleaseEndedTransfers() {
  for (auto& [peer, end] : ends_) {
    if (!end.move) continue;
    const TransferNode& to = ends_.at(end.other).transport->node();
    const bool lives = end.transport->node().sender().IsLive(end.move->dispatch) &&
                       (!end.move->placement || to.receiver().IsLive(*end.move->placement));
    if (!lives) end.move.reset();
  }
}

bool LoopbackNetwork::PublishEvents() {
  ReleaseEndedTransfers();
  bool any = false;
  for (const auto& [address, transport] : transports_) {
    std::vector<TransferEvent> events = transport->node().TakeEvents();
    if (transport->node().has_events()) pool_wait_ = PoolWait::kCopy;
    any |= !events.empty();
    transport->Publish(std::move(events));
  }
  return any;
}

int64_t LoopbackNetwork::NextDeadlineUs() {
  int64_t next = std::numeric_limits<int64_t>::max();
  for (const auto& [address, transport] : transports_) {
    next = std::min(next, transport->node().NextDeadlineUs());
  }
  return next;
}

std::shared_ptr<LoopbackNetwork> CreateLoopbackNetwork() {
  return std::make_shared<LoopbackNetwork>();
}

absl::StatusOr<std::unique_ptr<KvTransport>> CreateLoopbackTransport(
    std::shared_ptr<LoopbackNetwork> network, std::string name, TransportOptions options) {
  RETURN_IF_ERROR(CheckTransportOptions(options));
  LoopbackNetwork& wires = *network;
  auto transport = std::make_unique<LoopbackTransport>(std::move(network), name, options);
  RETURN_IF_ERROR(wires.Add(transport.get()));
  return transport;
}

}  // namespace baton
