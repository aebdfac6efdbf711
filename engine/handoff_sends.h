// Hand-offs that go out: the blocks of prompts that are computed here for peers.
//
//   Start → AnnounceComputed* → (layers of the last chunk)* → Deliver → OnEvent
//
// Blocks travel as they become full (AnnounceComputed). In the step that ends the prompt, the
// layers of all remaining blocks travel as they are written (LayerListener, layer_pieces.h).
// Deliver announces the rest, with the manifest.
//
// Invariants:
//  1. An announced block is held until the transfer's terminal event, also when its request ended
//     earlier.
//  2. A window's block that the receiver lacks never slides out of the window before it is
//     announced: the token behind the prompt sees it, and so do all before that.
//  3. Blocks whose layers were announced are the ones that Deliver announces, also where the
//     sequence has others by now, because another sequence had cached the same tokens first.
//
// Thread safety: belongs to the engine thread.
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
  int64_t timeout_ms = 120'000;  // of a transfer
  LayerPieces::Options layer_pieces;
};

class HandoffSends {
 public:
  // Both outlive this; `transport` may be null: then every ticket is refused.
  HandoffSends(const HandoffSendOptions& options, KvCacheManager* cache, KvTransport* transport);

  // Whether a prompt of `tokens` tokens can be sent for the ticket: FailedPrecondition without a
  // transport or if the receiver's blocks are too large for windows, InvalidArgument names the
  // ticket's field.
  absl::Status Check(const TransferTicket& ticket, int32_t tokens) const;
  // Begins the hand-off of the request's sequence. Errors are the transport's. REQUIRES: Check.
  absl::Status Start(RequestHandle request, const TransferTicket& ticket, int32_t tokens,
                     int32_t priority);
  // Announces the full committed blocks that were not announced yet. REQUIRES: the sequence lives.
  void AnnounceComputed(RequestHandle request);
  // StepInput::kv_written of a step: announces layers of prompts' last chunks while the step
  // computes the layers behind them. Returns null if the step has no
  // layers to announce. A request may end before its layers are
  // written.
  std::function<void(int32_t layers, int32_t chunks)> LayerListener(const SchedulerOutput& plan);
  // The prompt is computed: announces the rest with the manifest. The sequence may end then; the
  // blocks stay held. REQUIRES: the hand-off is live.
  void Deliver(RequestHandle request, const HandoffManifest& manifest);
  // The request has ended. Ignored if its hand-off has.
  void Cancel(RequestHandle request);
  // A terminal event of a send. Returns whether a live hand-off ended: one whose request still
  // waits for it.
  bool OnEvent(const TransferEvent& event);

  int32_t active() const { return static_cast<int32_t>(sends_.size()); }
  // Appends what this holds of a KV group in the cache, a block as often as it is held.
  void AppendHeld(int32_t group, std::vector<BlockId>& held) const;

 private:
  struct Send {
    SequenceBlocks to_send;  // our blocks that hold what the receiver lacks
    MovedTokens moved;
    int32_t whole = 0;               // of the blocks, announced as a whole
    std::vector<BlockId> rows = {};  // of these and perhaps of the rest; held
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
