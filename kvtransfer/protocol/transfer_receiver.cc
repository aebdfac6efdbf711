#include "kvtransfer/protocol/transfer_receiver.h"

#include <algorithm>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/check.h"

namespace baton {

using Kind = TransferEvent::Kind;

void TransferReceiver::Expect(ReceiveSpec spec, int64_t now_us) {
  const uint64_t id = spec.transfer_id;
  const auto [it, inserted] =
      sessions_.try_emplace(id, layout_, std::move(spec), next_serial_++, now_us);
  CHECK(inserted) << "transfer " << id << " is expected twice";
  deadlines_.emplace(it->second.deadline_us(), id);
}

void TransferReceiver::Cancel(uint64_t transfer_id) {
  Fail(transfer_id, absl::CancelledError("cancelled by the receiver"));
}

ReceiveSession* TransferReceiver::Find(uint64_t transfer_id, PeerId peer) {
  const auto it = sessions_.find(transfer_id);
  return it != sessions_.end() && it->second.peer() == peer ? &it->second : nullptr;
}

void TransferReceiver::OnAnnounce(PeerId peer, const SenderLink& link, const AnnounceFrame& frame,
                                  int64_t now_us) {
  const auto refuse = [&](absl::StatusCode code, std::string reason) {
    frames_.push_back({peer, AbortFrame{.transfer_id = frame.transfer_id,
                                        .sender_transfer = frame.sender_transfer,
                                        .code = code,
                                        .reason = std::move(reason)}});
  };
  if (frame.receiver_epoch != epoch_) {
    return refuse(absl::StatusCode::kFailedPrecondition,
                  absl::StrFormat("receiver_epoch: ours %d, announced for %d", epoch_.value(),
                                  frame.receiver_epoch.value()));
  }
  const auto it = sessions_.find(frame.transfer_id);
  if (it == sessions_.end()) {
    return refuse(absl::StatusCode::kNotFound,
                  absl::StrCat("transfer ", frame.transfer_id, " is not expected here"));
  }
  ReceiveSession& session = it->second;
  const bool was_bound = session.peer().has_value();
  const absl::Status status = session.OnAnnounce(peer, link, frame);
  if (was_bound && absl::IsFailedPrecondition(status)) {  // the first sender's transfer continues
    return refuse(status.code(), std::string(status.message()));
  }
  if (!was_bound) ++bound_[peer];
  if (!status.ok()) return Fail(frame.transfer_id, status);
  Step(session, now_us);
}

std::optional<BlockPlacement> TransferReceiver::OnBlock(PeerId peer, const BlockFrame& frame) {
  ReceiveSession* session = Find(frame.transfer_id, peer);
  if (session == nullptr || session->sender_transfer() != frame.sender_transfer) return {};
  if (frame.receiver_epoch != epoch_) {
    Fail(frame.transfer_id, absl::FailedPreconditionError(absl::StrFormat(
                                "receiver_epoch: ours %d, block %d says %d", epoch_.value(),
                                frame.block, frame.receiver_epoch.value())));
    return {};
  }
  absl::StatusOr<LandingParts> parts = session->OnBlock(frame);
  if (!parts.ok()) {
    Fail(frame.transfer_id, parts.status());
    return {};
  }
  return BlockPlacement{session->serial(), frame.transfer_id, *std::move(parts),
                        session->payload_bytes()};
}

void TransferReceiver::OnBlockLanded(const BlockPlacement& placement, int64_t bytes,
                                     const absl::Status& verified, int64_t now_us) {
  if (!IsLive(placement)) return;
  if (!verified.ok()) return Fail(placement.transfer_id, verified);
  ReceiveSession& session = sessions_.at(placement.transfer_id);
  if (session.OnBlockLanded(bytes, now_us) && !session.complete()) {
    events_.push_back(session.Event(Kind::kReceiving, absl::OkStatus()));
  }
  Step(session, now_us);
}

void TransferReceiver::OnAbort(PeerId peer, const AbortFrame& frame) {
  const ReceiveSession* session = Find(frame.transfer_id, peer);
  if (session == nullptr || session->sender_transfer() != frame.sender_transfer) return;
  Fail(frame.transfer_id, absl::Status(frame.code, absl::StrCat("sender: ", frame.reason)),
       /*tell_peer=*/false);
}

void TransferReceiver::OnPeerLost(PeerId peer, const absl::Status& why) {
  if (!HasTransfersWith(peer)) return;
  std::vector<uint64_t> lost;
  for (const auto& [id, session] : sessions_) {
    if (session.peer() == peer) lost.push_back(id);
  }
  std::sort(lost.begin(), lost.end());  // so that every process uses the same order
  for (const uint64_t id : lost) Fail(id, why, /*tell_peer=*/false);
}

void TransferReceiver::OnStoreFailed(const absl::Status& why) {
  std::vector<uint64_t> live;
  for (const auto& [id, session] : sessions_) live.push_back(id);
  std::sort(live.begin(), live.end());  // so that every process uses the same order
  for (const uint64_t id : live) Fail(id, why);
  std::erase_if(events_, [](const TransferEvent& event) { return event.kind == Kind::kReceiving; });
  for (TransferEvent& event : events_) {
    if (event.kind == Kind::kReceived) {
      event.status = why;
      event.manifest.clear();
    }
    event.kind = Kind::kReceiveFailed;
    event.blocks_done = 0;
  }
}

void TransferReceiver::OnTimer(int64_t now_us) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now_us) {
    const uint64_t id = deadlines_.begin()->second;
    const bool bound = sessions_.at(id).peer().has_value();
    Fail(id, absl::DeadlineExceededError(absl::StrCat(
                 "transfer ", id,
                 bound ? " missed its deadline" : " was not announced before its deadline")));
  }
}

bool TransferReceiver::IsLive(const BlockPlacement& placement) const {
  const auto it = sessions_.find(placement.transfer_id);
  return it != sessions_.end() && it->second.serial() == placement.serial;
}

bool TransferReceiver::HasTransfersWith(PeerId peer) const { return bound_.contains(peer); }

int64_t TransferReceiver::NextDeadlineUs() const {
  return deadlines_.empty() ? std::numeric_limits<int64_t>::max() : deadlines_.begin()->first;
}

void TransferReceiver::Fail(uint64_t transfer_id, const absl::Status& status, bool tell_peer) {
  const auto it = sessions_.find(transfer_id);
  if (it == sessions_.end()) return;
  const ReceiveSession& session = it->second;
  if (tell_peer && session.peer()) {
    frames_.push_back({*session.peer(), AbortFrame{.transfer_id = transfer_id,
                                                   .sender_transfer = session.sender_transfer(),
                                                   .code = status.code(),
                                                   .reason = std::string(status.message())}});
  }
  events_.push_back(session.Event(Kind::kReceiveFailed, status));
  Erase(it);
}

void TransferReceiver::Erase(Sessions::iterator it) {
  const ReceiveSession& session = it->second;
  deadlines_.erase({session.deadline_us(), session.id()});
  if (session.peer()) {
    const auto bound = bound_.find(*session.peer());
    if (--bound->second == 0) bound_.erase(bound);
  }
  sessions_.erase(it);
}

void TransferReceiver::Step(ReceiveSession& session, int64_t now_us) {
  if (session.complete()) {
    frames_.push_back({*session.peer(), session.MakeDone(now_us)});
    events_.push_back(session.Event(Kind::kReceived, absl::OkStatus()));
    Erase(sessions_.find(session.id()));
    return;
  }
  while (const std::optional<PullFrame> pull = session.NextPull(now_us)) {
    frames_.push_back({*session.peer(), *pull});
  }
}

}  // namespace baton
