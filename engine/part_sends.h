// Outgoing parts of chunked prompts: sends the parts that a peer lacks, each as a transfer of its
// own.
//
//   Start → SendDone* (a part is done, here or in the cache) → OnEvent*
//
// At most `max_transfers` parts are sent at once; the others wait in a queue. If a transfer fails,
// the receiver learns of it and computes the part, so the request continues here. If a transfer
// cannot be started, the receiver learns nothing, so the request must fail.
//
// Invariants:
//  1. The blocks of a part are held from SendDone until the terminal event of its transfer, even if
//     the request ends earlier.
//  2. A part is sent once.
//
// Thread safety: engine thread only.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "cache/chunk_layout.h"
#include "cache/kv_cache_manager.h"
#include "common/clock.h"
#include "engine/joint_transfers.h"
#include "engine/prompt_parts.h"
#include "engine/request.h"
#include "kvtransfer/transport.h"

namespace baton {

struct PartSendOptions {
  int64_t timeout_ms = 120'000;  // per transfer
  // Below the transport's limit, so that hand-offs of other requests always have room.
  int32_t max_transfers = 512;
};

class PartSends {
 public:
  // Numbers of transfers (SendSpec::sender_transfer) from here on belong to this object. Requests
  // have lower ones.
  static constexpr uint64_t kFirstTransfer = uint64_t{1} << 63;

  // All pointers must outlive this. `transport` may be null: then Start must not be called.
  PartSends(const PartSendOptions& options, KvCacheManager* cache, KvTransport* transport,
            const PromptParts* parts, const Clock* clock);

  // Remembers which parts the request must send. REQUIRES: CheckPartTickets is OK; the request is
  // new.
  void Start(RequestHandle request, const TransferTicket& ticket, const ChunkLayout& layout,
             int32_t priority);
  // Sends the parts that are done and were not sent. Ignores requests without parts to send.
  // REQUIRES: the request's main sequence is admitted and in PromptParts.
  void SendDone(RequestHandle request);
  // Cancels the transfers of a request that has ended.
  void Cancel(RequestHandle request);
  // Handles an event. Returns false if it belongs to no transfer of this object.
  bool OnEvent(const TransferEvent& event);

  // State of the transfers of a request. Unknown requests have no parts to send.
  struct Progress {
    int32_t left = 0;      // parts whose transfer has not ended
    JointTransfers moved;  // by the transfers that succeeded
    absl::Status started;  // of a transfer that could not be started
  };
  Progress ProgressOf(RequestHandle request) const;
  // Returns the requests of which a transfer has ended, or could not be started, since the last
  // call, rising. They may have ended.
  std::vector<RequestHandle> TakeEnded();

  int32_t active() const { return static_cast<int32_t>(sends_.size()); }
  // Appends the blocks that outgoing parts hold in the cache. A block appears once per hold.
  void AppendHeld(std::vector<BlockId>& held) const;

 private:
  struct ToSend {
    PartTicket ticket;
    int32_t tokens = 0;
  };
  struct Request {
    TransferTicket ticket;       // without parts
    std::vector<ToSend> unsent;  // rising
    int32_t priority = 0;
    int32_t under_way = 0;  // parts with a transfer
    JointTransfers moved;
    absl::Status started;
  };
  struct Send {
    RequestHandle request = 0;
    SendSpec spec;
    std::vector<BlockId> blocks;  // held in the cache
    bool started = false;
    bool cancelled = false;
  };

  void StartQueued();
  Request* End(uint64_t transfer);

  const PartSendOptions options_;
  KvCacheManager* const cache_;
  KvTransport* const transport_;
  const PromptParts* const parts_;
  const Clock* const clock_;
  absl::flat_hash_map<RequestHandle, Request> requests_;
  absl::flat_hash_map<uint64_t, Send> sends_;  // by sender_transfer, with those in the queue
  std::deque<uint64_t> queue_;                 // not started; may have ended
  int32_t started_ = 0;
  std::vector<RequestHandle> ended_;  // for TakeEnded
  uint64_t next_transfer_ = kFirstTransfer;
};

}  // namespace baton
