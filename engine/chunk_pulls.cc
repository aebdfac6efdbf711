#include "engine/chunk_pulls.h"

#include <algorithm>
#include <span>
#include <utility>

#include "common/check.h"
#include "common/status_macros.h"
#include "common/str_cat.h"
#include "engine/part_tickets.h"
#include "kvtransfer/protocol/transfer_plan.h"

namespace baton {
namespace {

int32_t TokensIn(const ChunkLayout::Part& part) { return static_cast<int32_t>(part.tokens.size()); }

}  // namespace

ChunkPulls::ChunkPulls(const ChunkPullOptions& options, KvCacheManager* cache,
                       KvTransport* transport, PromptParts* parts, const Clock* clock,
                       std::function<uint64_t()> new_transfer_id)
    : options_(options),
      cache_(cache),
      transport_(transport),
      parts_(parts),
      clock_(clock),
      new_transfer_id_(std::move(new_transfer_id)) {}

ChunkPulls::~ChunkPulls() { CHECK(idle()) << "destroyed with live transfers"; }

// ---- receiving ----------------------------------------------------------------------------------

void ChunkPulls::Pull(RequestHandle handle, const PullRequest& request,
                      std::shared_ptr<PullSink> sink, int32_t spare_blocks) {
  const absl::Status begun = Begin(handle, request, sink, spare_blocks);
  if (!begun.ok()) sink->OnDone(begun);
}

// On error, nothing was reserved and the sink was not called.
absl::Status ChunkPulls::Begin(RequestHandle handle, const PullRequest& request,
                               const std::shared_ptr<PullSink>& sink, int32_t spare_blocks) {
  if (transport_ == nullptr) {
    return absl::FailedPreconditionError("this worker has no KV transport to receive chunks");
  }
  RETURN_IF_ERROR(parts_->CheckSupported({}));
  if (parts_->Stats().budget_blocks == 0) {
    return absl::FailedPreconditionError("this worker's chunk cache is off or has no blocks");
  }
  const auto layout = std::make_shared<const ChunkLayout>(
      MakeChunkLayout(*request.chunked, request.cache_namespace, parts_->piece_tokens()));
  ActivePull& pull = pulls_[handle];
  pull.sink = sink;
  pull.layout = layout;
  TransferTicket ticket{.receiver_epoch = transport_->epoch(),
                        .address = transport_->address(),
                        .block_size = cache_->options().block_size,
                        .timeout_ms = request.timeout_ms > 0
                                          ? std::min(request.timeout_ms, options_.longest_ms)
                                          : options_.longest_ms,
                        .piece_tokens = parts_->piece_tokens()};
  absl::Status no_room;
  for (size_t i = 0; i < layout->parts.size(); ++i) {
    const Part& part = layout->parts[i];
    if (part.kind == ChunkKind::kSystem || parts_->HasOrAwaits(part)) continue;
    if (const uint64_t transfer = OnItsWay(part); transfer != 0) {
      imports_.at(transfer).pulls.push_back(handle);
      ++pull.waits_for;
    } else if (no_room.ok()) {
      no_room =
          Expect(handle, layout, static_cast<int32_t>(i), ticket.timeout_ms, spare_blocks, ticket);
      pull.waits_for += no_room.ok() ? 1 : 0;
    }
  }
  if (pull.waits_for == 0 && !no_room.ok()) {
    pulls_.erase(handle);
    return no_room;
  }
  if (!ticket.parts.empty()) {
    sink->OnTicket(ticket);
  } else if (pull.waits_for == 0) {
    EndPull(handle);
  }
  return absl::OkStatus();
}

uint64_t ChunkPulls::OnItsWay(const Part& part) const {
  for (const auto& [id, import] : imports_) {
    if (import.pulls.empty()) continue;
    const Part& coming = import.layout->parts[import.part];
    if (coming.key == part.key && coming.tokens == part.tokens) return id;
  }
  return 0;
}

// Posts the transfer of one part. Takes nothing on failure.
absl::Status ChunkPulls::Expect(RequestHandle handle,
                                const std::shared_ptr<const ChunkLayout>& layout, int32_t part,
                                int64_t timeout_ms, int32_t spare_blocks, TransferTicket& ticket) {
  const int32_t tokens = TokensIn(layout->parts[part]);
  const int32_t blocks = cache_->BlocksFor(tokens);
  if (static_cast<int64_t>(imports_.size()) >= options_.max_transfers) {
    return absl::ResourceExhaustedError(StrCat(
        imports_.size(), " chunk parts are being pulled; the limit is ", options_.max_transfers));
  }
  if (const int32_t budget = parts_->Stats().budget_blocks; blocks > budget) {
    return absl::ResourceExhaustedError(
        StrCat("a chunk part of ", blocks, " blocks does not fit the chunk cache of ", budget));
  }
  const int32_t most = cache_->num_blocks() / 2;
  if (pulled_blocks_ + blocks > most || cache_->available_blocks() - blocks < spare_blocks) {
    return absl::ResourceExhaustedError(
        StrCat("a chunk part of ", blocks, " blocks does not fit: ", pulled_blocks_,
               " blocks are being pulled, the limit is ", most, "; ", cache_->available_blocks(),
               " blocks are available, and ", spare_blocks, " of them must stay available"));
  }
  const SequenceId sequence = NewSequence();
  RETURN_IF_ERROR(cache_->BeginPart(sequence, tokens));
  absl::Status posted = cache_->Reserve(sequence, tokens);
  ReceiveSpec spec;
  if (posted.ok()) {
    const std::span<const BlockId> table = cache_->BlockTable(sequence);
    spec.transfer_id = new_transfer_id_();
    spec.blocks.assign(table.begin(), table.begin() + blocks);
    spec.tokens = tokens;
    spec.timeout_ms = timeout_ms;
    spec.may_end_early = true;
    posted = transport_->Expect(spec);
  }
  if (!posted.ok()) {
    cache_->Release(sequence, /*keep=*/false);
    return posted;
  }
  cache_->HoldForTransfer(spec.blocks);
  pulled_blocks_ += blocks;
  ticket.parts.push_back(
      {.part = part, .transfer_id = spec.transfer_id, .first_block = 0, .block_count = blocks});
  imports_.emplace(spec.transfer_id, Import{.sequence = sequence,
                                            .layout = layout,
                                            .part = part,
                                            .blocks = std::move(spec.blocks),
                                            .pulls = {handle}});
  return absl::OkStatus();
}

bool ChunkPulls::OnEvent(const TransferEvent& event) {
  switch (event.kind) {
    case TransferEvent::Kind::kReceiving:
      return IsReceiving(event.id);
    case TransferEvent::Kind::kReceived:
    case TransferEvent::Kind::kReceiveFailed: {
      auto node = imports_.extract(event.id);
      if (node.empty()) return false;
      Arrived(std::move(node.mapped()), event);
      return true;
    }
    case TransferEvent::Kind::kSent:
    case TransferEvent::Kind::kSendFailed: {
      const auto found = exports_.find(event.id);
      if (found == exports_.end()) return false;
      cache_->ReleaseTransferHold(found->second);
      exports_.erase(found);
      return true;
    }
  }
  return false;
}

void ChunkPulls::Arrived(Import import, const TransferEvent& event) {
  cache_->ReleaseTransferHold(import.blocks);
  pulled_blocks_ -= static_cast<int32_t>(import.blocks.size());
  const bool whole = event.blocks_done == static_cast<int32_t>(import.blocks.size());
  if (whole) Store(import);
  cache_->Release(import.sequence, /*keep=*/false);
  for (const RequestHandle handle : import.pulls) {
    ActivePull& pull = pulls_.at(handle);
    --pull.waits_for;
    pull.moved.Add(event, clock_->NowUs());
    if (whole) pull.pulled_tokens += TokensIn(import.layout->parts[import.part]);
    if (!whole && pull.failure.ok()) pull.failure = event.status;
    if (pull.waits_for == 0) EndPull(handle);
  }
}

// A request may have computed the part meanwhile.
void ChunkPulls::Store(const Import& import) {
  const Part& part = import.layout->parts[import.part];
  if (parts_->HasOrAwaits(part)) return;
  parts_->chunk_cache().Store({.key = part.key,
                               .tokens = part.tokens,
                               .position = part.position,
                               .first_block = 0,
                               .blocks = import.blocks});
}

PullResult ChunkPulls::ResultOf(const ActivePull& pull) const {
  PullResult result{.tokens = 0,
                    .pulled_tokens = pull.pulled_tokens,
                    .kv_bytes = pull.moved.bytes(),
                    .kv_transfer_us = pull.moved.busy_us()};
  for (const Part& part : pull.layout->parts) {
    if (IsCached(part) || parts_->Sleeps(part)) result.tokens += TokensIn(part);
  }
  return result;
}

// REQUIRES: the pull waits for no transfer.
void ChunkPulls::EndPull(RequestHandle handle) {
  const auto node = pulls_.extract(handle);
  const ActivePull& pull = node.mapped();
  if (pull.pulled_tokens > 0 || pull.failure.ok()) return pull.sink->OnDone(ResultOf(pull));
  // UNAVAILABLE would mean this worker, but the source is the one that is gone.
  pull.sink->OnDone(absl::IsUnavailable(pull.failure)
                        ? absl::AbortedError(StrCat("the source failed: ", pull.failure.message()))
                        : pull.failure);
}

void ChunkPulls::Cancel(RequestHandle handle) {
  const auto node = pulls_.extract(handle);
  if (node.empty()) return;
  std::vector<uint64_t> unwanted;
  for (auto& [id, import] : imports_) {
    const bool has_ticket = !import.pulls.empty() && import.pulls.front() == handle;
    std::erase(import.pulls, handle);
    if (has_ticket) unwanted.push_back(id);
  }
  std::sort(unwanted.begin(), unwanted.end());
  for (const uint64_t id : unwanted) transport_->CancelReceive(id);
  node.mapped().sink->OnDone(absl::CancelledError("the pull was cancelled"));
}

// ---- sending ------------------------------------------------------------------------------------

absl::StatusOr<int32_t> ChunkPulls::Send(const SendPrefixRequest& request) {
  if (transport_ == nullptr) {
    return absl::FailedPreconditionError("this worker has no KV transport to send chunks");
  }
  const TransferTicket& ticket = request.ticket;
  RETURN_IF_ERROR(CheckPieceTokens(ticket.piece_tokens));
  const int32_t block_size = cache_->options().block_size;
  const ChunkLayout layout =
      MakeChunkLayout(*request.chunked, request.cache_namespace, ticket.piece_tokens);
  RETURN_IF_ERROR(CheckPartTickets(ticket, layout, block_size));
  const size_t after = exports_.size() + ticket.parts.size();
  if (static_cast<int64_t>(after) > options_.max_transfers) {
    return absl::ResourceExhaustedError(StrCat(exports_.size(), " chunk parts are being sent, ",
                                               ticket.parts.size(), " more were requested; the ",
                                               "limit is ", options_.max_transfers));
  }
  int32_t tokens = 0;
  for (const PartTicket& part : ticket.parts) {
    const Part& wanted = layout.parts[part.part];
    if (IsCached(wanted)) tokens += TokensIn(wanted);
  }
  if (tokens == 0) return absl::NotFoundError("none of these chunks is cached here");
  for (const PartTicket& part : ticket.parts) {
    const Part& wanted = layout.parts[part.part];
    const SendSpec spec{.sender_transfer = next_transfer_++,
                        .ticket = TicketOfPart(ticket, part),
                        .tokens = TokensIn(wanted),
                        .timeout_ms = options_.longest_ms,
                        .may_end_early = true,
                        .priority = request.priority};
    // After an error, the receiver waits for the other parts until its timeout at most.
    RETURN_IF_ERROR(transport_->StartSend(spec));
    std::vector<BlockId> blocks;
    if (IsCached(wanted)) {
      const SequenceBlocks range = SenderBlocks(spec.ticket, spec.tokens, block_size);
      const auto moved =
          parts_->chunk_cache().Peek(wanted.key, wanted.tokens)->ids.subspan(range.first);
      blocks.assign(moved.begin(), moved.end());
      parts_->chunk_cache().Touch(wanted.key, wanted.tokens);
    }
    cache_->HoldForTransfer(blocks);
    transport_->Announce(spec.sender_transfer, blocks, /*final=*/true, {});
    exports_.emplace(spec.sender_transfer, std::move(blocks));
  }
  return tokens;
}

// The chunk cache has only the end of a system part.
bool ChunkPulls::IsCached(const Part& part) const {
  return part.kind != ChunkKind::kSystem &&
         parts_->chunk_cache().Peek(part.key, part.tokens).has_value();
}

// ---- both ---------------------------------------------------------------------------------------

void ChunkPulls::Shutdown(const absl::Status& status) {
  std::vector<RequestHandle> handles;
  for (const auto& [handle, pull] : pulls_) handles.push_back(handle);
  std::sort(handles.begin(), handles.end());
  for (const RequestHandle handle : handles) {
    pulls_.extract(handle).mapped().sink->OnDone(status);
  }
  for (auto& [id, import] : imports_) {
    import.pulls.clear();
    transport_->CancelReceive(id);
  }
  for (const auto& [id, blocks] : exports_) transport_->CancelSend(id);
}

void ChunkPulls::AppendHeld(std::vector<BlockId>& held) const {
  for (const auto& [id, import] : imports_) {
    held.insert(held.end(), import.blocks.begin(), import.blocks.end());
  }
  for (const auto& [id, blocks] : exports_) held.insert(held.end(), blocks.begin(), blocks.end());
}

}  // namespace baton
