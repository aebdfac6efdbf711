// State machine for all transfers that a worker sends. It asks its host for links to receivers,
// announces blocks, answers pulls, and ends sessions at their deadlines.
//
// All transfers to one address share one link. Their blocks take turns on it by priority
// (send_queue.h). When a link fails, its transfers fail too. The next Start for that address asks
// for a new link.
//
// Pure: messages and time go in, messages and events come out. The host (transfer_node.h) moves the
// bytes.
//
// Invariants:
//  - Each Start leads to exactly one terminal event.
//  - A session is removed when its terminal event exists.
//  - A reachable receiver is told about every end, so it need not wait for its deadline. If it does
//    not know the transfer yet, it first gets an introduction that names the sender.
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

  // REQUIRES: CheckSendSpec, and no live transfer with this id.
  void Start(SendSpec spec, int64_t now_us);
  // Ignored if the transfer has ended.
  void Announce(uint64_t sender_transfer, const std::vector<BlockId>& blocks, bool final,
                std::string manifest, int64_t now_us);
  void AnnounceLayers(uint64_t sender_transfer, const std::vector<BlockId>& rest, int32_t layers);
  void Cancel(uint64_t sender_transfer);

  // Returns addresses to which a link is wanted and not being opened yet. OnLinkOpen or OnLinkDown
  // answers each of them.
  std::vector<std::string> TakeConnects() { return std::exchange(connects_, {}); }
  bool wants_connects() const { return !connects_.empty(); }
  void OnLinkOpen(const std::string& address, PeerId peer, Epoch peer_epoch,
                  PullMode pulls = PullMode::kRequested);
  // This receiver accepts announcements of layers from now on.
  void OnTakesLayers(PeerId peer);
  // The link was refused, failed or was lost.
  void OnLinkDown(const std::string& address, const absl::Status& why);

  void OnPull(PeerId peer, const PullFrame& frame, int64_t now_us);
  void OnDone(PeerId peer, const DoneFrame& frame, int64_t now_us);
  void OnAbort(PeerId peer, const AbortFrame& frame);
  void OnTimer(int64_t now_us);

  // Returns the next block to send on this link.
  std::optional<BlockDispatch> NextBlock(PeerId peer);
  // Returns the payload bytes of what NextBlock would return.
  std::optional<int64_t> NextBlockBytes(PeerId peer) const;
  void OnBlockSent(const BlockDispatch& dispatch, int64_t now_us);
  // The pool could not read the block's bytes: its transfer fails.
  void OnBlockUnreadable(const BlockDispatch& dispatch, const absl::Status& why);
  // False once the session's terminal event exists. Its blocks must then no longer be read.
  bool IsLive(const BlockDispatch& dispatch) const;

  bool HasTransfersWith(PeerId peer) const;
  int32_t transfers() const { return static_cast<int32_t>(sessions_.size()); }
  bool HasBlocksFor(PeerId peer) const;
  // INT64_MAX if there is no deadline.
  int64_t NextDeadlineUs() const;
  bool has_frames() const { return !frames_.empty() || !with_news_.empty(); }
  std::vector<OutgoingFrame> TakeFrames(int64_t now_us);
  bool has_events() const { return !events_.empty(); }
  std::vector<TransferEvent> TakeEvents() { return std::exchange(events_, {}); }

 private:
  // End of a transfer that the receiver does not know yet.
  struct Farewell {
    AnnounceFrame introduction;
    AbortFrame abort;
  };
  struct Link {
    std::optional<PeerId> peer;  // set while the link is open
    Epoch peer_epoch{0};
    PullMode pulls = PullMode::kRequested;
    bool takes_layers = false;
    std::set<uint64_t> sessions;     // live sessions, by sender_transfer
    SendQueue queue;                 // sessions with blocks to send
    std::deque<Farewell> farewells;  // of sessions that ended before the link opened
  };

  SendSession* Find(uint64_t sender_transfer, uint64_t transfer_id, PeerId peer);
  Link* FindLink(PeerId peer);
  const Link* FindLink(PeerId peer) const;
  // Called on an open link. Fails a session if its ticket names another epoch. Marks other sessions
  // to be announced.
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
  std::map<std::string, Link> links_;                 // open, being opened, or wanted
  absl::flat_hash_map<PeerId, Link*> open_links_;     // the open ones of links_
  std::set<std::pair<int64_t, uint64_t>> deadlines_;  // (deadline_us, sender_transfer)
  std::vector<uint64_t> with_news_;                   // sessions with an announcement to send
  std::vector<std::string> connects_;
  std::vector<OutgoingFrame> frames_;
  std::vector<TransferEvent> events_;
};

}  // namespace baton
