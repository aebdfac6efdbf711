// Every transfer a worker sends: asks its host for links to receivers, announces, answers pulls,
// ends sessions at their deadlines.
//
// All transfers to one address share one link. Blocks of different transfers take turns on it, by
// their priorities (send_queue.h). When a link fails, its transfers fail with it; the
// next StartSend asks for a new one.
//
// Pure: messages and time in, messages and events out; the host (transfer_node.h) moves bytes.
//
// Invariants: one terminal event per Start; a session is gone once its terminal event exists. A
// receiver that can be reached hears of every end: one that was told nothing of the transfer yet is
// told whose it was, and that it is over, so that it need not wait for its deadline.
//
// Thread safety: belongs to one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "cache/kv_pool_layout.h"
#include "common/strong_int.h"
#include "kvtransfer/protocol/send_queue.h"
#include "kvtransfer/protocol/send_session.h"
#include "kvtransfer/protocol/transfer_frame.h"
#include "kvtransfer/protocol/transfer_receiver.h"
#include "kvtransfer/transport.h"

namespace baton {

class TransferSender {
 public:
  // `layout` must outlive this.
  explicit TransferSender(const KvPoolLayout& layout) : layout_(layout) {}
  explicit TransferSender(KvPoolLayout&& layout) = delete;

  // REQUIRES: CheckSendSpec, and no live transfer of this id.
  void Start(SendSpec spec, int64_t now_us);
  // Ignored for a transfer that has ended.
  void Announce(uint64_t sender_transfer, const std::vector<BlockId>& blocks, bool final,
                std::string manifest, int64_t now_us);
  void AnnounceLayers(uint64_t sender_transfer, const std::vector<BlockId>& rest, int32_t layers);
  void Cancel(uint64_t sender_transfer);

  // Addresses to which a link is wanted and not yet being made. Each is answered by OnLinkOpen or
  // OnLinkDown.
  std::vector<std::string> TakeConnects() { return std::exchange(connects_, {}); }
  bool wants_connects() const { return !connects_.empty(); }
  void OnLinkOpen(const std::string& address, PeerId peer, Epoch peer_epoch,
                  PullMode pulls = PullMode::kRequested);
  // From now on this receiver is told of blocks' first layers.
  void OnTakesLayers(PeerId peer);
  // Refused, failed or lost.
  void OnLinkDown(const std::string& address, const absl::Status& why);

  void OnPull(PeerId peer, const PullFrame& frame, int64_t now_us);
  void OnDone(PeerId peer, const DoneFrame& frame, int64_t now_us);
  void OnAbort(PeerId peer, const AbortFrame& frame);
  void OnTimer(int64_t now_us);

  // The block whose turn it is on this link.
  std::optional<BlockDispatch> NextBlock(PeerId peer);
  void OnBlockSent(const BlockDispatch& dispatch, int64_t now_us);
  // Its bytes could not be read from the pool: the transfer fails.
  void OnBlockUnreadable(const BlockDispatch& dispatch, const absl::Status& why);
  // False once the session's terminal event exists: its blocks must no longer be read.
  bool IsLive(const BlockDispatch& dispatch) const;

  bool HasTransfersWith(PeerId peer) const;
  int32_t transfers() const { return static_cast<int32_t>(sessions_.size()); }
  bool HasBlocksFor(PeerId peer) const;
  // INT64_MAX when there is none.
  int64_t NextDeadlineUs() const;
  bool has_frames() const { return !frames_.empty() || !with_news_.empty(); }
  std::vector<OutgoingFrame> TakeFrames(int64_t now_us);
  bool has_events() const { return !events_.empty(); }
  std::vector<TransferEvent> TakeEvents() { return std::exchange(events_, {}); }

 private:
  struct Farewell {
    AnnounceFrame introduction;
    AbortFrame abort;
  };
  struct Link {
    std::optional<PeerId> peer;  // set while open
    Epoch peer_epoch{0};
    PullMode pulls = PullMode::kRequested;
    bool takes_layers = false;
    std::set<uint64_t> sessions;     // live, by sender_transfer
    SendQueue queue;                 // those with blocks to send
    std::deque<Farewell> farewells;  // of those that ended before the link was open
  };

  SendSession* Find(uint64_t sender_transfer, uint64_t transfer_id, PeerId peer);
  Link* FindLink(PeerId peer);
  const Link* FindLink(PeerId peer) const;
  // On an open link: fails a session whose ticket names another epoch, marks the others to be
  // announced.
  void Introduce(const Link& link, SendSession& session);
  void HasNews(SendSession& session);
  void Pull(Link& link, SendSession& session, const PullFrame& frame, int64_t now_us);
  void Fail(uint64_t sender_transfer, const absl::Status& status, bool tell_peer = true);
  void Erase(uint64_t sender_transfer);
  void TellEnd(Link& link, const SendSession& session, const absl::Status& status);
  void Say(const Link& link, const Farewell& farewell);

  const KvPoolLayout& layout_;
  uint64_t next_serial_ = 1;
  absl::flat_hash_map<uint64_t, SendSession> sessions_;
  std::map<std::string, Link> links_;                 // made, being made or wanted
  absl::flat_hash_map<PeerId, Link*> open_links_;     // of them
  std::set<std::pair<int64_t, uint64_t>> deadlines_;  // (deadline_us, sender_transfer)
  std::vector<uint64_t> with_news_;                   // sessions that have for their receiver
  std::vector<std::string> connects_;
  std::vector<OutgoingFrame> frames_;
  std::vector<TransferEvent> events_;
};

}  // namespace baton
