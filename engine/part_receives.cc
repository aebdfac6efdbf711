#include "engine/part_receives.h"

#include <algorithm>
#include <utility>

#include "common/status_macros.h"
#include "common/str_cat.h"

namespace baton {

PartReceives::PartReceives(const PartReceiveOptions& options, KvCacheManager* cache,
                           KvTransport* transport, PromptParts* parts,
                           std::function<uint64_t()> new_transfer_id)
    : options_(options),
      cache_(cache),
      transport_(transport),
      parts_(parts),
      new_transfer_id_(std::move(new_transfer_id)) {}

void PartReceives::Expect(SequenceId main, TransferTicket& ticket) {
  ticket.piece_tokens = parts_->piece_tokens();
  for (const PromptParts::CreatedPart& part : parts_->CreatedFor(main)) {
    if (Post(main, part, ticket).ok()) continue;
    parts_->OnArrived(part.sequence, cache_->matched(part.sequence), nullptr);
  }
}

absl::Status PartReceives::Post(SequenceId main, const PromptParts::CreatedPart& part,
                                TransferTicket& ticket) {
  if (active() >= options_.max_transfers) {
    return absl::ResourceExhaustedError(
        StrCat(active(), " parts are being received; the limit is ", options_.max_transfers));
  }
  const int32_t first_block = cache_->matched(part.sequence) / cache_->options().block_size;
  const std::span<const BlockId> missing =
      cache_->BlockTable(part.sequence).subspan(static_cast<size_t>(first_block));
  const auto count = cache_->BlocksFor(part.tokens) - first_block;
  Receive receive{.main = main,
                  .ticket_id = ticket.transfer_id,
                  .part = part.sequence,
                  .tokens = part.tokens,
                  .first_block = first_block,
                  .blocks = {missing.begin(), missing.begin() + count}};
  ReceiveSpec spec;
  spec.transfer_id = new_transfer_id_();
  spec.first_block = first_block;
  spec.blocks = receive.blocks;
  spec.tokens = part.tokens;
  spec.timeout_ms = options_.timeout_ms;
  const uint64_t id = spec.transfer_id;
  RETURN_IF_ERROR(transport_->Expect(std::move(spec)));
  cache_->HoldForTransfer(receive.blocks);
  receives_.emplace(id, std::move(receive));
  ticket.parts.push_back(
      {.part = part.part, .transfer_id = id, .first_block = first_block, .block_count = count});
  return absl::OkStatus();
}

template <typename Belongs>
bool PartReceives::CancelIf(Belongs belongs) {
  std::vector<uint64_t> found;
  for (auto& [id, receive] : receives_) {
    if (receive.cancelled || !belongs(receive)) continue;
    receive.cancelled = true;
    found.push_back(id);
  }
  std::sort(found.begin(), found.end());
  for (const uint64_t id : found) transport_->CancelReceive(id);
  return !found.empty();
}

void PartReceives::Cancel(SequenceId main) {
  CancelIf([&](const Receive& receive) { return receive.main == main; });
}

bool PartReceives::GiveUp(uint64_t ticket_id) {
  return CancelIf([&](const Receive& receive) { return receive.ticket_id == ticket_id; });
}

bool PartReceives::Waits(uint64_t ticket_id) const {
  return std::any_of(receives_.begin(), receives_.end(), [&](const auto& entry) {
    return entry.second.ticket_id == ticket_id && !entry.second.cancelled;
  });
}

bool PartReceives::OnEvent(const TransferEvent& event) {
  if (event.kind == TransferEvent::Kind::kReceiving) return IsReceiving(event.id);
  if (event.kind != TransferEvent::Kind::kReceived &&
      event.kind != TransferEvent::Kind::kReceiveFailed) {
    return false;
  }
  const auto node = receives_.extract(event.id);
  if (node.empty()) return false;
  const Receive& receive = node.mapped();
  cache_->ReleaseTransferHold(receive.blocks);
  const int32_t landed = (receive.first_block + event.blocks_done) * cache_->options().block_size;
  parts_->OnArrived(receive.part, std::min(landed, receive.tokens), &event);
  return true;
}

void PartReceives::AppendHeld(std::vector<BlockId>& held) const {
  for (const auto& [id, receive] : receives_) {
    held.insert(held.end(), receive.blocks.begin(), receive.blocks.end());
  }
}

}  // namespace baton
