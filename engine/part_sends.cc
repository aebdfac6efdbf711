#include "engine/part_sends.h"

#include <algorithm>
#include <span>
#include <utility>

#include "common/check.h"
#include "engine/part_tickets.h"
#include "kvtransfer/protocol/transfer_plan.h"

namespace baton {
PartSends::PartSends(const PartSendOptions& options, KvCacheManager* cache, KvTransport* transport,
                     const PromptParts* parts, const Clock* clock)
    : options_(options), cache_(cache), transport_(transport), parts_(parts), clock_(clock) {}

void PartSends::Start(RequestHandle request, const TransferTicket& ticket,
                      const ChunkLayout& layout, int32_t priority) {
  Request made;
  made.ticket = ticket;
  made.ticket.parts.clear();
  made.priority = priority;
  for (const PartTicket& part : ticket.parts) {
    made.unsent.push_back(
        {.ticket = part, .tokens = static_cast<int32_t>(layout.parts[part.part].tokens.size())});
  }
  CHECK(requests_.emplace(request, std::move(made)).second) << "request " << request;
}

void PartSends::SendDone(RequestHandle request) {
  const auto found = requests_.find(request);
  if (found == requests_.end()) return;
  Request& sending = found->second;
  std::vector<ToSend> left;
  for (const ToSend& part : std::exchange(sending.unsent, {})) {
    const std::span<const BlockId> blocks =
        parts_->BlocksIfDone(SequenceOf(request), part.ticket.part);
    if (blocks.empty()) {
      left.push_back(part);
      continue;
    }
    Send send{.request = request,
              .spec = {.sender_transfer = next_transfer_,
                       .ticket = TicketOfPart(sending.ticket, part.ticket),
                       .tokens = part.tokens,
                       .timeout_ms = options_.timeout_ms,
                       .priority = sending.priority},
              .blocks = {}};
    const SequenceBlocks range =
        SenderBlocks(send.spec.ticket, part.tokens, cache_->options().block_size);
    const auto moved = blocks.subspan(range.first, range.count);
    send.blocks.assign(moved.begin(), moved.end());
    cache_->HoldForTransfer(send.blocks);
    sends_.emplace(next_transfer_, std::move(send));
    queue_.push_back(next_transfer_++);
    ++sending.under_way;
  }
  sending.unsent = std::move(left);
  StartQueued();
}

void PartSends::StartQueued() {
  while (!queue_.empty() && started_ < options_.max_transfers) {
    const uint64_t id = queue_.front();
    queue_.pop_front();
    const auto found = sends_.find(id);
    if (found == sends_.end()) continue;  // cancelled in the queue
    Send& send = found->second;
    if (absl::Status status = transport_->StartSend(send.spec); !status.ok()) {
      if (Request* const request = End(id)) request->started = std::move(status);
      continue;
    }
    send.started = true;
    ++started_;
    transport_->Announce(id, send.blocks, /*final=*/true, {});
  }
}

void PartSends::Cancel(RequestHandle request) {
  if (requests_.erase(request) == 0) return;
  std::vector<uint64_t> started;
  std::vector<uint64_t> queued;
  for (auto& [id, send] : sends_) {
    if (send.request != request || send.cancelled) continue;
    send.cancelled = true;
    (send.started ? started : queued).push_back(id);
  }
  std::sort(started.begin(), started.end());
  std::sort(queued.begin(), queued.end());
  for (const uint64_t id : started) transport_->CancelSend(id);
  for (const uint64_t id : queued) End(id);
}

// A transfer has ended, or was not started. Returns its request if that is live.
PartSends::Request* PartSends::End(uint64_t transfer) {
  const auto node = sends_.extract(transfer);
  const Send& send = node.mapped();
  cache_->ReleaseTransferHold(send.blocks);
  if (send.started) --started_;
  const auto request = requests_.find(send.request);
  if (send.cancelled || request == requests_.end()) return nullptr;
  --request->second.under_way;
  ended_.push_back(send.request);
  return &request->second;
}

bool PartSends::OnEvent(const TransferEvent& event) {
  if (event.kind != TransferEvent::Kind::kSent && event.kind != TransferEvent::Kind::kSendFailed) {
    return false;
  }
  if (!sends_.contains(event.id)) return false;
  Request* const request = End(event.id);
  if (request != nullptr && event.kind == TransferEvent::Kind::kSent) {
    request->moved.Add(event, clock_->NowUs());
  }
  StartQueued();
  return true;
}

PartSends::Progress PartSends::ProgressOf(RequestHandle request) const {
  const auto found = requests_.find(request);
  if (found == requests_.end()) return {};
  const Request& at = found->second;
  return {.left = at.under_way + static_cast<int32_t>(at.unsent.size()),
          .moved = at.moved,
          .started = at.started};
}

std::vector<RequestHandle> PartSends::TakeEnded() {
  std::vector<RequestHandle> ended = std::exchange(ended_, {});
  std::sort(ended.begin(), ended.end());
  ended.erase(std::unique(ended.begin(), ended.end()), ended.end());
  return ended;
}

void PartSends::AppendHeld(std::vector<BlockId>& held) const {
  for (const auto& [id, send] : sends_) {
    held.insert(held.end(), send.blocks.begin(), send.blocks.end());
  }
}

}  // namespace baton
