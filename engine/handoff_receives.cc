#include "engine/handoff_receives.h"

#include <utility>

#include "common/status_macros.h"
#include "common/str_cat.h"
#include "engine/transfer_rows.h"

namespace baton {

HandoffReceives::HandoffReceives(const HandoffReceiveOptions& options, KvCacheManager* cache,
                                 KvTransport* transport, std::function<uint64_t()> new_transfer_id)
    : options_(options),
      cache_(cache),
      transport_(transport),
      windows_(WindowSizes(*cache)),
      new_transfer_id_(std::move(new_transfer_id)) {}

absl::Status HandoffReceives::CheckTransport() const {
  if (transport_ != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError("this worker has no KV transport to receive a prefill");
}

absl::StatusOr<TransferTicket> HandoffReceives::Expect(RequestHandle request, int32_t tokens,
                                                       int32_t n) {
  const SequenceId id = SequenceOf(request);
  const int32_t block_size = cache_->options().block_size;
  const int32_t first_block = cache_->matched(id) / block_size;
  const int32_t needed = cache_->BlocksFor(tokens);
  ReceiveSpec spec;
  spec.transfer_id = new_transfer_id_();
  spec.first_block = first_block;
  spec.window_first_blocks = WindowFirstBlocks(*cache_, first_block, tokens);
  AppendRows(*cache_, id,
             MovedTokens(first_block, spec.window_first_blocks, tokens, block_size, windows_),
             {.first = first_block, .count = needed - first_block}, spec.blocks);
  spec.tokens = tokens;
  spec.timeout_ms = options_.timeout_ms;
  Receive receive{.request = request, .n = n, .rows = spec.blocks};
  TransferTicket ticket{.transfer_id = spec.transfer_id,
                        .receiver_epoch = transport_->epoch(),
                        .address = transport_->address(),
                        .first_block = first_block,
                        .block_count = needed - first_block,
                        .block_size = block_size,
                        .window_first_blocks = spec.window_first_blocks,
                        .timeout_ms = options_.timeout_ms};
  RETURN_IF_ERROR(transport_->Expect(std::move(spec)));
  HoldRows(*cache_, receive.rows);
  receives_.emplace(ticket.transfer_id, std::move(receive));
  return ticket;
}

void HandoffReceives::Cancel(uint64_t transfer_id) {
  const auto receive = receives_.find(transfer_id);
  if (receive == receives_.end() || receive->second.cancelled) return;
  receive->second.cancelled = true;
  transport_->CancelReceive(transfer_id);
}

absl::Status HandoffReceives::GiveUp(uint64_t transfer_id, Epoch receiver_epoch) {
  if (transport_ == nullptr || receiver_epoch != transport_->epoch()) {
    return absl::NotFoundError(StrCat("no transfer ", transfer_id, " in epoch ",
                                      receiver_epoch.value(), ": this worker has another epoch"));
  }
  const auto receive = receives_.find(transfer_id);
  if (receive == receives_.end() || receive->second.cancelled) {
    return absl::NotFoundError(StrCat("transfer ", transfer_id, " is not waiting for KV"));
  }
  // The transport may still be writing into the blocks. The request continues at the terminal
  // event, when the transport has stopped.
  Cancel(transfer_id);
  return absl::OkStatus();
}

std::optional<uint64_t> HandoffReceives::ToTakeOver(
    const std::function<int32_t(SequenceId)>& priority,
    const std::function<bool(uint64_t transfer_id, bool begun)>& may_be_taken) const {
  std::optional<uint64_t> chosen;
  std::pair<int32_t, RequestHandle> first;  // of the chosen one: rank and request
  for (const auto& [id, receive] : receives_) {
    if (receive.cancelled) return std::nullopt;
    if (!may_be_taken(id, receive.begun)) continue;
    const std::pair rank(-priority(SequenceOf(receive.request)), receive.request);
    if (chosen.has_value() && first < rank) continue;
    chosen = id;
    first = rank;
  }
  return chosen;
}

std::optional<ReceivedHandoff> HandoffReceives::OnEvent(const TransferEvent& event) {
  if (event.kind == TransferEvent::Kind::kReceiving) {
    if (const auto found = receives_.find(event.id); found != receives_.end()) {
      found->second.begun = true;
    }
    return std::nullopt;
  }
  const auto node = receives_.extract(event.id);
  if (node.empty()) return std::nullopt;
  const Receive& receive = node.mapped();
  ReleaseRows(*cache_, receive.rows);
  ReceivedHandoff received{.request = receive.request,
                           .manifest = std::nullopt,
                           .bytes = event.bytes,
                           .busy_us = event.busy_us};
  if (event.kind == TransferEvent::Kind::kReceiveFailed) {
    received.landed_blocks = event.blocks_done;
    return received;
  }
  absl::StatusOr<HandoffManifest> manifest = DecodeManifest(event.manifest, options_.vocabulary);
  // If the manifest is damaged or incomplete, none of the sender's blocks is used.
  if (manifest.ok() && manifest->drawn.size() == static_cast<size_t>(receive.n)) {
    received.manifest = *std::move(manifest);
    received.landed_blocks = event.blocks_done;
  }
  return received;
}

void HandoffReceives::AppendHeld(int32_t group, std::vector<BlockId>& held) const {
  for (const auto& [id, receive] : receives_) {
    AppendGroup(receive.rows, cache_->groups(), group, held);
  }
}

}  // namespace baton
