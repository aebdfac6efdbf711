// State machine for all transfers that a worker expects. It routes frames from peers to sessions,
// answers them, and ends sessions at their deadlines.
//
// Pure: messages and time go in, messages and events come out. The host (transfer_node.h) moves the
// bytes. A peer's mistake fails at most the transfer that it names. A frame that names no live
// transfer of that peer is dropped or answered with an Abort.
//
// Invariants:
//  - Each Expect leads to exactly one terminal event.
//  - A session is removed when its terminal event exists.
//  - When a peer is lost, all its sessions fail.
//
// Thread safety: belongs to one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "cache/kv_pool_layout.h"
#include "common/strong_int.h"
#include "kvtransfer/protocol/receive_session.h"
#include "kvtransfer/protocol/transfer_frame.h"
#include "kvtransfer/protocol/transfer_plan.h"
#include "kvtransfer/transport.h"

namespace baton {

struct OutgoingFrame {
  PeerId peer;
  Frame frame;
};

// Where the payload of an accepted Block lands.
struct BlockPlacement {
  uint64_t serial = 0;  // of the session; see IsLive
  uint64_t transfer_id = 0;
  // If the block sizes are equal: one part, at the beginning of its blocks.
  LandingParts parts;
  int64_t transfer_bytes = 0;  // payload of the whole transfer
};

class TransferReceiver {
 public:
  // `layout` must outlive this.
  TransferReceiver(const KvPoolLayout& layout, Epoch epoch) : layout_(layout), epoch_(epoch) {}
  TransferReceiver(KvPoolLayout&& layout, Epoch epoch) = delete;

  // REQUIRES: CheckReceiveSpec, and no live transfer with this id.
  void Expect(ReceiveSpec spec, int64_t now_us);
  void Cancel(uint64_t transfer_id);

  void OnAnnounce(PeerId peer, const SenderLink& link, const AnnounceFrame& frame, int64_t now_us);
  // Returns nothing if no live transfer wants the payload. The host must then discard it.
  std::optional<BlockPlacement> OnBlock(PeerId peer, const BlockFrame& frame);
  // The payload of a placement landed. `verified` is DataLoss if a CRC differs. Ignored if the
  // session has ended meanwhile.
  void OnBlockLanded(const BlockPlacement& placement, int64_t bytes, const absl::Status& verified,
                     int64_t now_us);
  void OnAbort(PeerId peer, const AbortFrame& frame);
  void OnPeerLost(PeerId peer, const absl::Status& why);
  // A copy into the pool failed, and it is not known of which block (TransferPool::TakeStoreError).
  // All transfers fail without a landed block, also those whose events were not taken yet.
  void OnStoreFailed(const absl::Status& why);
  void OnTimer(int64_t now_us);

  // False once the session's terminal event exists. Its blocks must then no longer be written.
  bool IsLive(const BlockPlacement& placement) const;
  bool HasTransfersWith(PeerId peer) const;
  // INT64_MAX if there is no deadline.
  int64_t NextDeadlineUs() const;
  std::vector<OutgoingFrame> TakeFrames() { return std::exchange(frames_, {}); }
  bool has_events() const { return !events_.empty(); }
  std::vector<TransferEvent> TakeEvents() { return std::exchange(events_, {}); }

 private:
  using Sessions = absl::flat_hash_map<uint64_t, ReceiveSession>;

  // Returns the live session that is bound to this peer, or null.
  ReceiveSession* Find(uint64_t transfer_id, PeerId peer);
  // Ends the session, and sends its peer an Abort if `tell_peer`.
  void Fail(uint64_t transfer_id, const absl::Status& status, bool tell_peer = true);
  void Erase(Sessions::iterator it);
  // Requests more blocks, or finishes the session. Called after progress.
  void Step(ReceiveSession& session, int64_t now_us);

  const KvPoolLayout& layout_;
  const Epoch epoch_;
  uint64_t next_serial_ = 1;
  Sessions sessions_;
  std::set<std::pair<int64_t, uint64_t>> deadlines_;  // (deadline_us, transfer id)
  absl::flat_hash_map<PeerId, int32_t> bound_;        // live sessions of each peer
  std::vector<OutgoingFrame> frames_;
  std::vector<TransferEvent> events_;
};

}  // namespace baton
