#include "engine/handoff_sends.h"

#include <utility>

#include "common/check.h"
#include "common/status_macros.h"
#include "kvtransfer/protocol/send_session.h"

namespace baton {

HandoffSends::HandoffSends(const HandoffSendOptions& options, KvCacheManager* cache,
                           KvTransport* transport)
    : options_(options),
      cache_(cache),
      transport_(transport),
      block_size_(cache->options().block_size),
      windows_(WindowSizes(*cache)),
      layer_pieces_(options.layer_pieces) {}

absl::Status HandoffSends::Check(const TransferTicket& ticket, int32_t tokens) const {
  if (transport_ == nullptr) {
    return absl::FailedPreconditionError("this worker has no KV transport to send a prefill");
  }
  RETURN_IF_ERROR(CheckTicket(ticket, tokens, block_size_, cache_->groups()));
  return CheckWindowsLandWhole(*cache_, ticket);
}

absl::Status HandoffSends::Start(RequestHandle request, const TransferTicket& ticket,
                                 int32_t tokens, int32_t priority) {
  RETURN_IF_ERROR(transport_->StartSend({.sender_transfer = request,
                                         .ticket = ticket,
                                         .tokens = tokens,
                                         .timeout_ms = options_.timeout_ms,
                                         .priority = priority}));
  sends_.emplace(request, Send{.to_send = SenderBlocks(ticket, tokens, block_size_),
                               .moved = MovedTokens(ticket, tokens, block_size_, windows_)});
  return absl::OkStatus();
}

HandoffSends::Send* HandoffSends::FindLive(RequestHandle request) {
  const auto found = sends_.find(request);
  return found == sends_.end() || found->second.cancelled ? nullptr : &found->second;
}

// Appends rows of the next `count` blocks of the sequence, holds them, and returns them.
std::span<const BlockId> HandoffSends::Hold(RequestHandle request, Send& send, int32_t count) {
  const size_t before = send.rows.size();
  const SequenceBlocks next = {.first = send.to_send.first + send.whole, .count = count};
  AppendRows(*cache_, SequenceOf(request), send.moved, next, send.rows);
  const std::span<const BlockId> rows = std::span(send.rows).subspan(before);
  HoldRows(*cache_, rows);
  return rows;
}

// Returns the rows of the blocks that the prompt's last step computes: all blocks not announced
// whole, including a part-full last one. Holds them at the first call.
std::span<const BlockId> HandoffSends::HoldRest(RequestHandle request, Send& send) {
  if (!send.has_rest) Hold(request, send, send.left());
  send.has_rest = true;
  return std::span(send.rows).last(static_cast<size_t>(send.left()) * cache_->groups());
}

void HandoffSends::AnnounceComputed(RequestHandle request) {
  Send* const send = FindLive(request);
  if (send == nullptr || send->has_rest) return;  // Deliver announces the rest
  const int32_t full = cache_->committed(SequenceOf(request)) / block_size_;
  const int32_t count = full - (send->to_send.first + send->whole);
  if (count <= 0) return;
  transport_->Announce(request, Hold(request, *send, count), /*final=*/false, {});
  send->whole += count;
}

std::function<void(int32_t layers, int32_t chunks)> HandoffSends::LayerListener(
    const SchedulerOutput& plan) {
  struct LastChunk {
    RequestHandle request;
    int32_t index;       // in the step's chunks
    int32_t pieces = 0;  // 0: set when the first layer is written
  };
  if (!layer_pieces_.on()) return nullptr;
  std::vector<LastChunk> last_chunks;
  for (int32_t i = 0; i < static_cast<int32_t>(plan.chunks.size()); ++i) {
    const ScheduledChunk& chunk = plan.chunks[i];
    if (!chunk.samples) continue;
    const RequestHandle request = HandleOf(chunk.id);
    const Send* const send = FindLive(request);
    if (send == nullptr || send->left() == 0) continue;
    last_chunks.push_back({request, i});
  }
  if (last_chunks.empty()) return nullptr;
  return [this, last_chunks](int32_t layers, int32_t chunks) mutable {
    for (LastChunk& last : last_chunks) {
      if (last.index >= chunks) return;  // the step no longer computes these chunks
      Send* const send = FindLive(last.request);
      if (send == nullptr) continue;
      if (last.pieces == 0) {
        last.pieces = layer_pieces_.PiecesFor(int64_t{send->left()} * block_size_);
      }
      if (layer_pieces_.EndsPiece(layers, last.pieces)) {
        transport_->AnnounceLayers(last.request, HoldRest(last.request, *send), layers);
      }
    }
  };
}

void HandoffSends::Deliver(RequestHandle request, const HandoffManifest& manifest) {
  Send* const send = FindLive(request);
  CHECK(send != nullptr) << "request " << request << " outlived its transfer";
  transport_->Announce(request, HoldRest(request, *send), /*final=*/true, EncodeManifest(manifest));
}

void HandoffSends::Cancel(RequestHandle request) {
  Send* const send = FindLive(request);
  if (send == nullptr) return;
  send->cancelled = true;
  transport_->CancelSend(request);
}

bool HandoffSends::OnEvent(const TransferEvent& event) {
  const auto node = sends_.extract(event.id);
  if (node.empty()) return false;
  const Send& send = node.mapped();
  ReleaseRows(*cache_, send.rows);
  if (send.cancelled) return false;
  if (event.kind == TransferEvent::Kind::kSent) layer_pieces_.OnSent(event.bytes, event.busy_us);
  return true;
}

void HandoffSends::AppendHeld(int32_t group, std::vector<BlockId>& held) const {
  for (const auto& [request, send] : sends_) {
    AppendGroup(send.rows, cache_->groups(), group, held);
  }
}

}  // namespace baton
