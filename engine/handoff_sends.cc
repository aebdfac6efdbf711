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
      layer_pieces_(options.layer_pieces) {}

absl::Status HandoffSends::Check(const TransferTicket& ticket, int32_t tokens) const {
  if (transport_ == nullptr) {
    return absl::FailedPreconditionError("this worker has no KV transport to send a prefill");
  }
  return CheckTicket(ticket, tokens, block_size_);
}

absl::Status HandoffSends::Start(RequestHandle request, const TransferTicket& ticket,
                                 int32_t tokens, int32_t priority) {
  RETURN_IF_ERROR(transport_->StartSend({.sender_transfer = request,
                                         .ticket = ticket,
                                         .tokens = tokens,
                                         .timeout_ms = options_.timeout_ms,
                                         .priority = priority}));
  sends_.emplace(request, Send{.to_send = SenderBlocks(ticket, tokens, block_size_)});
  return absl::OkStatus();
}

HandoffSends::Send* HandoffSends::FindLive(RequestHandle request) {
  const auto found = sends_.find(request);
  return found == sends_.end() || found->second.cancelled ? nullptr : &found->second;
}

void HandoffSends::Hold(Send& send, std::span<const BlockId> blocks) {
  cache_->HoldForTransfer(blocks);
  send.held.insert(send.held.end(), blocks.begin(), blocks.end());
}

void HandoffSends::AnnounceComputed(RequestHandle request) {
  Send* const send = FindLive(request);
  if (send == nullptr || !send->rest.empty()) return;  // with the last chunk, Deliver announces
  const int32_t full = cache_->committed(SequenceOf(request)) / block_size_;
  const int32_t begin = send->to_send.first + send->announced;
  if (full <= begin) return;
  const std::span<const BlockId> blocks =
      cache_->BlockTable(SequenceOf(request)).subspan(begin, full - begin);
  Hold(*send, blocks);
  transport_->Announce(request, blocks, /*final=*/false, {});
  send->announced += full - begin;
}

// What is computed in the step that ends a prompt: all blocks behind those that were announced, a
// part-full last one included.
std::span<const BlockId> HandoffSends::RestToAnnounce(RequestHandle request,
                                                      const Send& send) const {
  const int32_t begin = send.to_send.first + send.announced;
  const int32_t end = send.to_send.first + send.to_send.count;
  return cache_->BlockTable(SequenceOf(request)).subspan(begin, end - begin);
}

std::function<void(int32_t layers, int32_t chunks)> HandoffSends::LayerListener(
    const SchedulerOutput& plan) {
  struct LastChunk {
    RequestHandle request;
    int32_t index;       // of the step's chunks
    int32_t pieces = 0;  // 0: not known before the first layer
  };
  if (!layer_pieces_.on()) return nullptr;
  std::vector<LastChunk> last_chunks;
  for (int32_t i = 0; i < static_cast<int32_t>(plan.chunks.size()); ++i) {
    const ScheduledChunk& chunk = plan.chunks[i];
    if (!chunk.samples) continue;
    const RequestHandle request = HandleOf(chunk.id);
    const Send* const send = FindLive(request);
    if (send == nullptr || RestToAnnounce(request, *send).empty()) continue;
    last_chunks.push_back({request, i});
  }
  if (last_chunks.empty()) return nullptr;
  return [this, last_chunks](int32_t layers, int32_t chunks) mutable {
    for (LastChunk& last : last_chunks) {
      if (last.index >= chunks) return;  // not written any more
      Send* const send = FindLive(last.request);
      if (send == nullptr) continue;
      if (last.pieces == 0) {
        const auto blocks = static_cast<int64_t>(RestToAnnounce(last.request, *send).size());
        last.pieces = layer_pieces_.PiecesFor(blocks * block_size_);
      }
      if (layer_pieces_.EndsPiece(layers, last.pieces)) {
        AnnounceLayers(last.request, *send, layers);
      }
    }
  };
}

void HandoffSends::AnnounceLayers(RequestHandle request, Send& send, int32_t layers) {
  if (send.rest.empty()) {
    const std::span<const BlockId> rest = RestToAnnounce(request, send);
    send.rest.assign(rest.begin(), rest.end());
    Hold(send, rest);
  }
  transport_->AnnounceLayers(request, send.rest, layers);
}

void HandoffSends::Deliver(RequestHandle request, const HandoffManifest& manifest) {
  Send* const send = FindLive(request);
  CHECK(send != nullptr) << "request " << request << " outlived its transfer";
  if (send->rest.empty()) {
    const std::span<const BlockId> rest = RestToAnnounce(request, *send);
    send->rest.assign(rest.begin(), rest.end());
    Hold(*send, rest);
  }
  transport_->Announce(request, send->rest, /*final=*/true, EncodeManifest(manifest));
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
  cache_->ReleaseTransferHold(send.held);
  if (send.cancelled) return false;
  if (event.kind == TransferEvent::Kind::kSent) layer_pieces_.OnSent(event.bytes, event.busy_us);
  return true;
}

void HandoffSends::AppendHeld(std::vector<BlockId>& held) const {
  for (const auto& [request, send] : sends_) {
    held.insert(held.end(), send.held.begin(), send.held.end());
  }
}

}  // namespace baton
