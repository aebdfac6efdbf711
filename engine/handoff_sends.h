// Outgoing hand-offs: sends the blocks of prompts that this worker computes for peers.
//
//   Start → AnnounceComputed* → (layers of the last chunk)* → Deliver → OnEvent
//
// AnnounceComputed sends blocks as they become full. In the step that ends the prompt, the layers
// of all remaining blocks are sent as they are written (LayerListener, layer_pieces.h). Deliver
// announces the rest together with the manifest.
//
// Invariants:
//  1. An announced block is held until the transfer's terminal event, even if its request ends
//     earlier.
//  2. A window's block that the receiver lacks is announced before it slides out of the window. The
//     token after the prompt sees that block, so every earlier token sees it too.
//  3. Deliver announces the blocks of which layers were announced. The sequence may have other
//     blocks by then, because another sequence cached the same tokens first.
//
// Thread safety: engine thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "cache/kv_cache_manager.h"
#include "engine/handoff_manifest.h"
#include "engine/layer_pieces.h"
#include "engine/request.h"
#include "engine/transfer_rows.h"
#include "kvtransfer/protocol/transfer_plan.h"
#include "kvtransfer/transport.h"
#include "scheduler/scheduler.h"

namespace baton {

struct HandoffSendOptions {
  int64_t timeout_ms = 120'000;  // per transfer
  LayerPieces::Options layer_pieces;
};

class HandoffSends {
 public:
  // Both pointers must outlive this. `transport` may be null: then Check refuses every ticket.
  HandoffSends(const HandoffSendOptions& options, KvCacheManager* cache, KvTransport* transport);

  // Checks that a prompt of `tokens` tokens can be sent for the ticket. FailedPrecondition: no
  // transport, or the receiver's blocks are too large for sliding windows. InvalidArgument names
  // the ticket's field.
  absl::Status Check(const TransferTicket& ticket, int32_t tokens) const;
  // Starts the hand-off of the request's sequence. Errors come from the transport. REQUIRES: Check
  // has passed.
  absl::Status Start(RequestHandle request, const TransferTicket& ticket, int32_t tokens,
                     int32_t priority);
  // Announces the full committed blocks that are not announced yet. REQUIRES: the sequence is live.
  void AnnounceComputed(RequestHandle request);
  // Returns StepInput::kv_written for a step. It announces layers of prompts' last chunks while the
  // step computes later layers. Null if the step has no layers to announce. A request may end
  // before its layers are written.
  std::function<void(int32_t layers, int32_t chunks)> LayerListener(const SchedulerOutput& plan);
  // Announces the remaining blocks with the manifest, after the prompt is computed. The sequence
  // may then end; its announced blocks stay held. REQUIRES: the hand-off is live.
  void Deliver(RequestHandle request, const HandoffManifest& manifest);
  // Cancels the hand-off because its request has ended. Ignored if the hand-off has ended.
  void Cancel(RequestHandle request);
  // Handles the terminal event of a send. Returns true if the hand-off was live, that is, not
  // cancelled: its request is still waiting for it.
  bool OnEvent(const TransferEvent& event);

  int32_t active() const { return static_cast<int32_t>(sends_.size()); }
  // Appends the blocks of one KV group that outgoing hand-offs hold in the cache. A block appears
  // once per hold.
  void AppendHeld(int32_t group, std::vector<BlockId>& held) const;

 private:
  struct Send {
    SequenceBlocks to_send;  // this worker's blocks with the tokens that the receiver lacks
    MovedTokens moved;
    int32_t whole = 0;               // number of blocks announced whole
    std::vector<BlockId> rows = {};  // of these, then of the rest if has_rest; held
    bool has_rest = false;
    bool cancelled = false;
    int32_t left() const { return to_send.count - whole; }
  };

  Send* FindLive(RequestHandle request);
  std::span<const BlockId> Hold(RequestHandle request, Send& send, int32_t count);
  std::span<const BlockId> HoldRest(RequestHandle request, Send& send);

  const HandoffSendOptions options_;
  KvCacheManager* const cache_;
  KvTransport* const transport_;
  const int32_t block_size_;
  const std::vector<int32_t> windows_;  // WindowSizes
  LayerPieces layer_pieces_;
  absl::flat_hash_map<RequestHandle, Send> sends_;
};

}  // namespace baton
