#include "tests/sim/mutant_transport.h"

#include <utility>

namespace baton {

using Kind = TransferEvent::Kind;

bool MutantTransport::IsReceive(Kind kind) {
  return kind == Kind::kReceiving || kind == Kind::kReceived || kind == Kind::kReceiveFailed;
}

void MutantTransport::EndEarly(Kind kind, uint64_t id) {
  auto& ended = IsReceive(kind) ? ended_receives_ : ended_sends_;
  if (!ended.insert(id).second) return;
  TransferEvent event;
  event.kind = kind;
  event.id = id;
  if (kind != Kind::kSent) event.status = absl::CancelledError("cancelled");
  early_.push_back(std::move(event));
  worker_.wake();
}

absl::Status MutantTransport::Expect(ReceiveSpec spec) {
  if (spec.may_end_early) {
    pulled_blocks_[spec.transfer_id] = static_cast<int32_t>(spec.blocks.size());
  }
  return inner_.Expect(std::move(spec));
}

void MutantTransport::CancelReceive(uint64_t transfer_id) {
  if (mutant_ == Mutant::kAbortStorm) return;
  if (mutant_ == Mutant::kLateWrite) return EndEarly(Kind::kReceiveFailed, transfer_id);
  const bool strands =
      mutant_ == Mutant::kCancelStrandsReservation && !progressed_.contains(transfer_id);
  if (!strands) inner_.CancelReceive(transfer_id);
}

void MutantTransport::CancelSend(uint64_t sender_transfer) {
  if (mutant_ != Mutant::kAbortStorm) inner_.CancelSend(sender_transfer);
}

absl::Status MutantTransport::StartSend(SendSpec spec) {
  sends_[spec.sender_transfer] = {spec.ticket, 0};
  return inner_.StartSend(std::move(spec));
}

std::vector<BlockId> MutantTransport::ShiftedBlocks(const Send& send, uint64_t sender_transfer,
                                                    std::span<const BlockId> blocks) const {
  const std::span<const BlockId> table = worker_.block_table(sender_transfer);
  const auto begin = static_cast<size_t>(send.announced);
  if (send.ticket.first_block == 0 || begin + blocks.size() > table.size()) {
    return {blocks.begin(), blocks.end()};
  }
  const auto shifted = table.subspan(begin, blocks.size());
  return {shifted.begin(), shifted.end()};
}

// A reference by place alone: the block that a prompt of this length had there the last time.
std::vector<BlockId> MutantTransport::RememberedBlocks(const Send& send,
                                                       std::span<const BlockId> blocks) {
  std::vector<BlockId> referenced;
  const int32_t length = send.ticket.first_block + send.ticket.block_count;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const int32_t place = send.ticket.first_block + send.announced + static_cast<int32_t>(i);
    const auto [it, first] = remembered_.try_emplace({length, place}, blocks[i]);
    referenced.push_back(it->second);
  }
  return referenced;
}

void MutantTransport::Announce(uint64_t sender_transfer, std::span<const BlockId> blocks,
                               bool final, std::string manifest) {
  Send& send = sends_[sender_transfer];
  std::vector<BlockId> named(blocks.begin(), blocks.end());
  if (mutant_ == Mutant::kOneSidedHit) named = ShiftedBlocks(send, sender_transfer, blocks);
  if (mutant_ == Mutant::kStaleBlockReference) named = RememberedBlocks(send, blocks);
  send.announced += static_cast<int32_t>(blocks.size());
  if (final && mutant_ == Mutant::kMetadataSlotReused) {
    manifest_slot_ = std::move(manifest);
    waiting_.push_back({sender_transfer, std::move(named)});
    worker_.wake();
    return;
  }
  inner_.Announce(sender_transfer, named, final, std::move(manifest));
  if (final && mutant_ == Mutant::kEvictedBeforeSend) EndEarly(Kind::kSent, sender_transfer);
}

void MutantTransport::AnnounceLayers(uint64_t sender_transfer, std::span<const BlockId> rest,
                                     int32_t layers) {
  Send& send = sends_[sender_transfer];
  std::vector<BlockId> named(rest.begin(), rest.end());
  if (mutant_ == Mutant::kOneSidedHit) named = ShiftedBlocks(send, sender_transfer, rest);
  if (mutant_ == Mutant::kStaleBlockReference) named = RememberedBlocks(send, rest);
  inner_.AnnounceLayers(sender_transfer, named, layers);
}

std::vector<TransferEvent> MutantTransport::Poll() {
  for (const FinalAnnouncement& late : std::exchange(waiting_, {})) {
    inner_.Announce(late.sender_transfer, late.blocks, /*final=*/true, manifest_slot_);
  }
  std::vector<TransferEvent> events = std::exchange(early_, {});
  for (TransferEvent& event : inner_.Poll()) {
    if (event.kind == Kind::kReceiving) progressed_.insert(event.id);
    if (mutant_ == Mutant::kUnverifiedPull && event.kind == Kind::kReceiveFailed &&
        pulled_blocks_.contains(event.id)) {
      event.blocks_done = pulled_blocks_[event.id];
    }
    const auto& ended = IsReceive(event.kind) ? ended_receives_ : ended_sends_;
    if (!ended.contains(event.id)) events.push_back(std::move(event));
  }
  return events;
}

}  // namespace baton
