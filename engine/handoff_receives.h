// Hand-offs that come in: KV that a peer computes for requests here.
//
//   Expect → ticket → (blocks land, are verified) → OnEvent: what there is
//
// Invariants:
//  1. A transfer's blocks are held from the post until its terminal event, also when its request
//     ended earlier.
//  2. A peer's manifest counts only if it is whole and has a token for each choice of the request.
//     Without one the request computes the prompt here.
//
// Thread safety: belongs to the engine thread.
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
  int64_t timeout_ms = 120'000;  // of a transfer
};

// How a transfer ended.
struct ReceivedHandoff {
  RequestHandle request = 0;                // that waited for it
  std::optional<HandoffManifest> manifest;  // the whole prompt has landed; none: a part at most
  int32_t landed_blocks = 0;                // leading ones of the transfer, verified
  int64_t bytes = 0;
  int64_t busy_us = 0;
};

class HandoffReceives {
 public:
  // All outlive this; `transport` may be null. `new_transfer_id` gives ids that no other transfer
  // to this worker has, and that cannot be guessed.
  HandoffReceives(const HandoffReceiveOptions& options, KvCacheManager* cache,
                  KvTransport* transport, std::function<uint64_t()> new_transfer_id);

  // FailedPrecondition without a transport.
  absl::Status CheckTransport() const;
  // Posts the blocks that the request's sequence lacks of a prompt of `tokens` tokens: from its
  // match on, and of a window from there what the token behind the prompt sees. `n`: first tokens
  // that the peer draws. Errors are the transport's. REQUIRES: a transport; the sequence has blocks
  // for the prompt.
  absl::StatusOr<TransferTicket> Expect(RequestHandle request, int32_t tokens, int32_t n);
  // The request has ended. Ignored for transfers that are cancelled already or unknown.
  void Cancel(uint64_t transfer_id);
  // No KV will come: ends the transfer, and with its terminal event the request goes on here.
  // NotFound: it is not waiting for KV.
  absl::Status GiveUp(uint64_t transfer_id, Epoch receiver_epoch);
  // A terminal event of a receive, or its progress. None: the transfer goes on, or is unknown.
  std::optional<ReceivedHandoff> OnEvent(const TransferEvent& event);

  bool IsReceiving(uint64_t transfer_id) const { return receives_.contains(transfer_id); }
  int32_t active() const { return static_cast<int32_t>(receives_.size()); }
  // Appends what this holds of a KV group in the cache, a block as often as it is held.
  void AppendHeld(int32_t group, std::vector<BlockId>& held) const;

 private:
  struct Receive {
    RequestHandle request = 0;
    int32_t n = 1;
    std::vector<BlockId> rows;  // held
    bool cancelled = false;
  };

  const HandoffReceiveOptions options_;
  KvCacheManager* const cache_;
  KvTransport* const transport_;
  const std::vector<int32_t> windows_;  // WindowSizes
  const std::function<uint64_t()> new_transfer_id_;
  absl::flat_hash_map<uint64_t, Receive> receives_;  // by transfer id
};

}  // namespace baton
