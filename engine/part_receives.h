// Incoming parts of chunked prompts: KV that a peer sends for parts that this worker lacks.
//
//   Expect → part tickets → (blocks land, are verified) → OnEvent: the part is done, or continues
//   on this worker
//
// A part belongs to any number of requests (prompt_parts.h), but its transfer belongs to the
// request that created it. The transfer ends with this request. A part that other requests still
// want is then computed here, as after every failed transfer: first comes what landed, the rest is
// computed.
//
// Invariants:
//  1. A transfer's blocks are held from the post until its terminal event, even if its part ends
//     earlier.
//  2. Every part that Expect finds is received or computed. At most `max_transfers` parts are
//     received at once; others are computed.
//
// Thread safety: engine thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "cache/kv_cache_manager.h"
#include "engine/prompt_parts.h"
#include "kvtransfer/transport.h"

namespace baton {

struct PartReceiveOptions {
  int64_t timeout_ms = 120'000;  // per transfer
  // Below the transport's limit, so that hand-offs of other requests always have room.
  int32_t max_transfers = 512;
};

class PartReceives {
 public:
  // All pointers must outlive this. `transport` may be null: then Expect must not be called.
  // `new_transfer_id` as in HandoffReceives.
  PartReceives(const PartReceiveOptions& options, KvCacheManager* cache, KvTransport* transport,
               PromptParts* parts, std::function<uint64_t()> new_transfer_id);

  // Posts a transfer for each part that the admission of the main sequence has created, and names
  // it in the question's ticket. REQUIRES: `main` was admitted by Scheduler::AddWaitingForKv.
  void Expect(SequenceId main, TransferTicket& ticket);
  // Cancels the transfers that Expect posted for this main sequence. Its request has ended.
  void Cancel(SequenceId main);
  // Same, because no KV will come for the ticket with this id. Returns false if nothing was
  // waiting.
  bool GiveUp(uint64_t ticket_id);
  // Returns true if parts of the ticket with this id have not arrived yet.
  bool Waits(uint64_t ticket_id) const;
  // Handles an event. Returns false if it belongs to no transfer of this object.
  bool OnEvent(const TransferEvent& event);

  bool IsReceiving(uint64_t transfer_id) const { return receives_.contains(transfer_id); }
  int32_t active() const { return static_cast<int32_t>(receives_.size()); }
  // Appends the blocks that incoming parts hold in the cache. A block appears once per hold.
  void AppendHeld(std::vector<BlockId>& held) const;

 private:
  struct Receive {
    SequenceId main;
    uint64_t ticket_id = 0;
    SequenceId part;
    int32_t tokens = 0;           // of the part
    int32_t first_block = 0;      // of the blocks
    std::vector<BlockId> blocks;  // held in the cache
    bool cancelled = false;
  };

  absl::Status Post(SequenceId main, const PromptParts::CreatedPart& part, TransferTicket& ticket);
  template <typename Belongs>
  bool CancelIf(Belongs belongs);

  const PartReceiveOptions options_;
  KvCacheManager* const cache_;
  KvTransport* const transport_;
  PromptParts* const parts_;
  const std::function<uint64_t()> new_transfer_id_;
  absl::flat_hash_map<uint64_t, Receive> receives_;  // by transfer id
};

}  // namespace baton
