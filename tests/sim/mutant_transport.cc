#include "tests/sim/mutant_transport.h"

#include <utility>

namespace baton {

using Kind = TransferEvent::Kind;

namespace {

constexpr int64_t kLateUs = 1'500'000;  // Mutant::kCancelArrivesLate

}  // namespace

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
    pulled_blocks_[spec.transfer_id] = CountOf(spec.blocks);
  } else if (mutant_ == Mutant::kNoPromptTakenOver) {
    TransferEvent begun;
    begun.kind = Kind::kReceiving;
    begun.id = spec.transfer_id;
    early_.push_back(std::move(begun));
    worker_.wake();
  }
  return inner_.Expect(std::move(spec));
}

void MutantTransport::CancelReceive(uint64_t transfer_id) {
  if (mutant_ == Mutant::kAbortStorm) return;
  if (mutant_ == Mutant::kLateWrite) return EndEarly(Kind::kReceiveFailed, transfer_id);
  if (mutant_ == Mutant::kCancelArrivesLate) {
    return worker_.run_later(kLateUs, [this, transfer_id] { inner_.CancelReceive(transfer_id); });
  }
  const bool strands =
      mutant_ == Mutant::kCancelStrandsReservation && !progressed_.contains(transfer_id);
  if (!strands) inner_.CancelReceive(transfer_id);
}

void MutantTransport::CancelSend(uint64_t sender_transfer) {
  if (mutant_ == Mutant::kAbortStorm) return;
  if (mutant_ != Mutant::kCancelArrivesLate) return inner_.CancelSend(sender_transfer);
  worker_.run_later(kLateUs, [this, sender_transfer] { inner_.CancelSend(sender_transfer); });
}

absl::Status MutantTransport::StartSend(SendSpec spec) {
  sends_[spec.sender_transfer] = {spec.ticket, 0};
  return inner_.StartSend(std::move(spec));
}

std::vector<BlockId> MutantTransport::ShiftedRows(const Send& send, uint64_t sender_transfer,
                                                  std::span<const BlockId> rows) const {
  const std::span<const BlockId> table = worker_.block_table(sender_transfer);
  const int32_t count = CountOf(rows);
  std::vector<BlockId> shifted(rows.begin(), rows.end());
  if (send.ticket.first_block == 0 || send.announced + count > static_cast<int32_t>(table.size())) {
    return shifted;
  }
  for (int32_t i = 0; i < count; ++i) shifted[i * worker_.groups] = table[send.announced + i];
  return shifted;
}

// Refers to blocks by position alone: returns the block that a prompt of this length had at each
// position the last time.
std::vector<BlockId> MutantTransport::RememberedRows(const Send& send,
                                                     std::span<const BlockId> rows) {
  std::vector<BlockId> referenced(rows.begin(), rows.end());
  const int32_t length = send.ticket.first_block + send.ticket.block_count;
  for (int32_t i = 0; i < CountOf(rows); ++i) {
    const int32_t place = send.ticket.first_block + send.announced + i;
    BlockId& block = referenced[i * worker_.groups];
    block = remembered_.try_emplace({length, place}, block).first->second;
  }
  return referenced;
}

void MutantTransport::Announce(uint64_t sender_transfer, std::span<const BlockId> blocks,
                               bool final, std::string manifest) {
  Send& send = sends_[sender_transfer];
  std::vector<BlockId> named(blocks.begin(), blocks.end());
  if (mutant_ == Mutant::kOneSidedHit) named = ShiftedRows(send, sender_transfer, blocks);
  if (mutant_ == Mutant::kStaleBlockReference) named = RememberedRows(send, blocks);
  send.announced += CountOf(blocks);
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
  if (mutant_ == Mutant::kOneSidedHit) named = ShiftedRows(send, sender_transfer, rest);
  if (mutant_ == Mutant::kStaleBlockReference) named = RememberedRows(send, rest);
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
