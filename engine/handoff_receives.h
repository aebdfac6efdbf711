// Incoming hand-offs: KV that a peer computes for requests of this worker.
//
//   Expect → ticket → (blocks land, are verified) → OnEvent returns what landed
//
// Invariants:
//  1. A transfer's blocks are held from the post until its terminal event, even if its request ends
//     earlier.
//  2. A manifest is used only if it decodes and has a token for each choice of the request.
//     Otherwise the request computes the prompt here.
//  3. At most one transfer at a time ends because of ToTakeOver.
//
// Thread safety: engine thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cache/kv_cache_manager.h"
#include "engine/handoff_manifest.h"
#include "engine/request.h"
#include "kvtransfer/transport.h"

namespace baton {

struct HandoffReceiveOptions {
  int32_t vocabulary = 0;
  int64_t timeout_ms = 120'000;  // per transfer
};

// Result of a transfer.
struct ReceivedHandoff {
  RequestHandle request = 0;                // the request that waited for the transfer
  std::optional<HandoffManifest> manifest;  // present: the whole prompt has landed
  int32_t landed_blocks = 0;                // leading blocks of the transfer that are verified
  int64_t bytes = 0;
  int64_t busy_us = 0;
};

class HandoffReceives {
 public:
  // All pointers must outlive this. `transport` may be null: then CheckTransport fails.
  // `new_transfer_id` returns ids that no other transfer to this worker uses and that a peer cannot
  // guess.
  HandoffReceives(const HandoffReceiveOptions& options, KvCacheManager* cache,
                  KvTransport* transport, std::function<uint64_t()> new_transfer_id);

  // FailedPrecondition if there is no transport.
  absl::Status CheckTransport() const;
  // Posts the blocks that the request's sequence lacks for a prompt of `tokens` tokens, and returns
  // the ticket for them. These are the blocks after the cached match. Of a sliding window they are
  // the ones that the token after the prompt sees. `n`: number of first tokens that the peer
  // draws. Errors come from the transport. REQUIRES: there is a transport; the sequence has blocks
  // for the prompt.
  absl::StatusOr<TransferTicket> Expect(RequestHandle request, int32_t tokens, int32_t n);
  // Cancels a transfer because its request has ended. Ignores cancelled and unknown transfers.
  void Cancel(uint64_t transfer_id);
  // Cancels a transfer because no KV will come. The request continues here at the transfer's
  // terminal event. NotFound: the transfer is not waiting for KV, or `receiver_epoch` is not this
  // worker's.
  absl::Status GiveUp(uint64_t transfer_id, Epoch receiver_epoch);
  // Returns the transfer that this worker gives up if it has to compute one of the prompts that it
  // waits for: of those for which `may_be_taken` is true, the one with the highest priority, then
  // the earliest. nullopt: there is none, or a cancelled transfer is about to end.
  std::optional<uint64_t> ToTakeOver(
      const std::function<int32_t(SequenceId)>& priority,
      const std::function<bool(uint64_t transfer_id, bool begun)>& may_be_taken) const;
  // Handles an event of a receive. Returns the result at the terminal event of a known transfer,
  // else nothing.
  std::optional<ReceivedHandoff> OnEvent(const TransferEvent& event);

  bool IsReceiving(uint64_t transfer_id) const { return receives_.contains(transfer_id); }
  int32_t active() const { return static_cast<int32_t>(receives_.size()); }
  // Appends the blocks of one KV group that incoming hand-offs hold in the cache. A block appears
  // once per hold.
  void AppendHeld(int32_t group, std::vector<BlockId>& held) const;

 private:
  struct Receive {
    RequestHandle request = 0;
    int32_t n = 1;
    std::vector<BlockId> rows;  // held in the cache
    bool cancelled = false;
    bool begun = false;  // some blocks have landed, so the peer computes the prompt
  };

  const HandoffReceiveOptions options_;
  KvCacheManager* const cache_;
  KvTransport* const transport_;
  const std::vector<int32_t> windows_;  // WindowSizes
  const std::function<uint64_t()> new_transfer_id_;
  absl::flat_hash_map<uint64_t, Receive> receives_;  // by transfer id
};

}  // namespace baton
