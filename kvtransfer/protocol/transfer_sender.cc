#include "kvtransfer/protocol/transfer_sender.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/check.h"

namespace baton {

using Kind = TransferEvent::Kind;

namespace {

constexpr size_t kMaxFarewells = 1024;  // that wait for one link to open

}  // namespace

void TransferSender::Start(SendSpec spec, int64_t now_us) {
  const uint64_t id = spec.sender_transfer;
  const auto [it, inserted] =
      sessions_.try_emplace(id, layout_, std::move(spec), next_serial_++, now_us);
  CHECK(inserted) << "transfer " << id << " is started twice";
  SendSession& session = it->second;
  deadlines_.emplace(session.deadline_us(), id);
  const auto [link, new_link] = links_.try_emplace(session.ticket().address);
  link->second.sessions.insert(id);
  if (new_link) connects_.push_back(session.ticket().address);
  if (link->second.peer) Introduce(link->second, session);
}

void TransferSender::Announce(uint64_t sender_transfer, const std::vector<BlockId>& blocks,
                              bool final, std::string manifest, int64_t now_us) {
  const auto it = sessions_.find(sender_transfer);
  if (it == sessions_.end()) return;
  const absl::Status status = it->second.Announce(blocks, final, std::move(manifest), now_us);
  if (!status.ok()) return Fail(sender_transfer, status);
  if (links_.at(it->second.ticket().address).peer) HasNews(it->second);
}

void TransferSender::AnnounceLayers(uint64_t sender_transfer, const std::vector<BlockId>& rest,
                                    int32_t layers) {
  const auto it = sessions_.find(sender_transfer);
  if (it == sessions_.end()) return;
  const absl::Status status = it->second.AnnounceLayers(rest, layers);
  if (!status.ok()) return Fail(sender_transfer, status);
  const Link& link = links_.at(it->second.ticket().address);
  if (link.peer && link.takes_layers) HasNews(it->second);
}

void TransferSender::OnTakesLayers(PeerId peer) {
  if (Link* const link = FindLink(peer); link != nullptr) link->takes_layers = true;
}

void TransferSender::Cancel(uint64_t sender_transfer) {
  Fail(sender_transfer, absl::CancelledError("cancelled by the sender"));
}

void TransferSender::HasNews(SendSession& session) {
  if (std::exchange(session.has_news, true)) return;
  with_news_.push_back(session.id());
}

void TransferSender::Introduce(const Link& link, SendSession& session) {
  const Epoch wanted = session.ticket().receiver_epoch;
  if (wanted != link.peer_epoch) {
    return Fail(session.id(), absl::FailedPreconditionError(absl::StrFormat(
                                  "receiver_epoch: ticket has %d, %s is at %d", wanted.value(),
                                  session.ticket().address, link.peer_epoch.value())));
  }
  HasNews(session);
}

void TransferSender::OnLinkOpen(const std::string& address, PeerId peer, Epoch peer_epoch,
                                PullMode pulls) {
  Link& link = links_[address];
  link.peer = peer;
  link.pulls = pulls;
  link.peer_epoch = peer_epoch;
  open_links_[peer] = &link;
  for (const Farewell& farewell : std::exchange(link.farewells, {})) Say(link, farewell);
  const std::vector<uint64_t> waiting(link.sessions.begin(), link.sessions.end());
  for (const uint64_t id : waiting) Introduce(link, sessions_.at(id));
}

void TransferSender::OnLinkDown(const std::string& address, const absl::Status& why) {
  const auto it = links_.find(address);
  if (it == links_.end()) return;
  const std::vector<uint64_t> lost(it->second.sessions.begin(), it->second.sessions.end());
  for (const uint64_t id : lost) Fail(id, why, /*tell_peer=*/false);
  if (it->second.peer) open_links_.erase(*it->second.peer);
  links_.erase(it);
}

SendSession* TransferSender::Find(uint64_t sender_transfer, uint64_t transfer_id, PeerId peer) {
  const auto it = sessions_.find(sender_transfer);
  if (it == sessions_.end() || it->second.transfer_id() != transfer_id) return nullptr;
  return links_.at(it->second.ticket().address).peer == peer ? &it->second : nullptr;
}

TransferSender::Link* TransferSender::FindLink(PeerId peer) {
  const auto it = open_links_.find(peer);
  return it == open_links_.end() ? nullptr : it->second;
}

const TransferSender::Link* TransferSender::FindLink(PeerId peer) const {
  const auto it = open_links_.find(peer);
  return it == open_links_.end() ? nullptr : it->second;
}

void TransferSender::OnPull(PeerId peer, const PullFrame& frame, int64_t now_us) {
  SendSession* session = Find(frame.sender_transfer, frame.transfer_id, peer);
  if (session == nullptr) return;  // ended here while the pull was in flight
  Pull(*FindLink(peer), *session, frame, now_us);
}

void TransferSender::Pull(Link& link, SendSession& session, const PullFrame& frame,
                          int64_t now_us) {
  const bool in_turns = session.HasBlockToSend();
  const absl::Status status = session.OnPull(frame, now_us);
  if (!status.ok()) return Fail(frame.sender_transfer, status);
  if (!in_turns) link.queue.Add(frame.sender_transfer, session.priority());
}

void TransferSender::OnDone(PeerId peer, const DoneFrame& frame, int64_t now_us) {
  SendSession* session = Find(frame.sender_transfer, frame.transfer_id, peer);
  if (session == nullptr) return;
  const absl::Status status = session->OnDone(frame.landed_us, now_us);
  if (!status.ok()) return Fail(frame.sender_transfer, status);
  events_.push_back(session->Event(Kind::kSent, absl::OkStatus()));
  Erase(frame.sender_transfer);
}

void TransferSender::OnAbort(PeerId peer, const AbortFrame& frame) {
  if (Find(frame.sender_transfer, frame.transfer_id, peer) == nullptr) return;
  Fail(frame.sender_transfer, absl::Status(frame.code, absl::StrCat("receiver: ", frame.reason)),
       /*tell_peer=*/false);
}

void TransferSender::OnTimer(int64_t now_us) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now_us) {
    const uint64_t id = deadlines_.begin()->second;
    Fail(id, absl::DeadlineExceededError(absl::StrCat("transfer ", id, " missed its deadline")));
  }
}

std::optional<int64_t> TransferSender::NextBlockBytes(PeerId peer) const {
  const Link* link = FindLink(peer);
  if (link == nullptr || link->queue.empty()) return std::nullopt;
  return sessions_.at(link->queue.Next()).NextBlockBytes();
}

std::optional<BlockDispatch> TransferSender::NextBlock(PeerId peer) {
  Link* link = FindLink(peer);
  if (link == nullptr || link->queue.empty()) return std::nullopt;
  const uint64_t id = link->queue.Take();
  SendSession& session = sessions_.at(id);
  BlockDispatch dispatch = session.NextBlock();
  if (session.HasBlockToSend()) link->queue.Add(id, session.priority());
  return dispatch;
}

void TransferSender::OnBlockSent(const BlockDispatch& dispatch, int64_t now_us) {
  if (!IsLive(dispatch)) return;
  sessions_.at(dispatch.frame.sender_transfer).OnBlockSent(dispatch.frame, now_us);
}

void TransferSender::OnBlockUnreadable(const BlockDispatch& dispatch, const absl::Status& why) {
  if (IsLive(dispatch)) Fail(dispatch.frame.sender_transfer, why);
}

bool TransferSender::IsLive(const BlockDispatch& dispatch) const {
  const auto it = sessions_.find(dispatch.frame.sender_transfer);
  return it != sessions_.end() && it->second.serial() == dispatch.serial;
}

bool TransferSender::HasTransfersWith(PeerId peer) const {
  const Link* link = FindLink(peer);
  return link != nullptr && !link->sessions.empty();
}

bool TransferSender::HasBlocksFor(PeerId peer) const {
  const Link* link = FindLink(peer);
  return link != nullptr && !link->queue.empty();
}

int64_t TransferSender::NextDeadlineUs() const {
  return deadlines_.empty() ? std::numeric_limits<int64_t>::max() : deadlines_.begin()->first;
}

std::vector<OutgoingFrame> TransferSender::TakeFrames(int64_t now_us) {
  for (const uint64_t id : with_news_) {
    SendSession& session = sessions_.at(id);
    Link& link = links_.at(session.ticket().address);
    frames_.push_back({*link.peer, session.MakeAnnounce(link.takes_layers)});
    session.told = true;
    session.has_news = false;
    if (link.pulls != PullMode::kImplied) continue;
    while (const std::optional<PullFrame> rest = session.RestToPull(link.takes_layers)) {
      Pull(link, session, *rest, now_us);
    }
  }
  with_news_.clear();
  return std::exchange(frames_, {});
}

void TransferSender::Fail(uint64_t sender_transfer, const absl::Status& status, bool tell_peer) {
  const auto it = sessions_.find(sender_transfer);
  if (it == sessions_.end()) return;
  const SendSession& session = it->second;
  if (tell_peer) TellEnd(links_.at(session.ticket().address), session, status);
  events_.push_back(session.Event(Kind::kSendFailed, status));
  Erase(sender_transfer);
}

// A receiver ignores an Abort of a transfer that it does not know. So an introduction goes first.
void TransferSender::TellEnd(Link& link, const SendSession& session, const absl::Status& status) {
  Farewell farewell{.introduction = session.MakeIntroduction(),
                    .abort = {.transfer_id = session.transfer_id(),
                              .sender_transfer = session.id(),
                              .code = status.code(),
                              .reason = std::string(status.message())}};
  if (!link.peer) {
    link.farewells.push_back(std::move(farewell));
    if (link.farewells.size() > kMaxFarewells) link.farewells.pop_front();
  } else if (session.told) {
    frames_.push_back({*link.peer, std::move(farewell.abort)});
  } else {
    Say(link, farewell);
  }
}

void TransferSender::Say(const Link& link, const Farewell& farewell) {
  if (farewell.introduction.receiver_epoch != link.peer_epoch) return;  // another incarnation
  frames_.push_back({*link.peer, farewell.introduction});
  frames_.push_back({*link.peer, farewell.abort});
}

void TransferSender::Erase(uint64_t sender_transfer) {
  const auto it = sessions_.find(sender_transfer);
  const SendSession& session = it->second;
  deadlines_.erase({session.deadline_us(), sender_transfer});
  if (session.has_news) std::erase(with_news_, sender_transfer);
  Link& link = links_.at(session.ticket().address);
  link.sessions.erase(sender_transfer);
  link.queue.Remove(sender_transfer, session.priority());
  sessions_.erase(it);
}

}  // namespace baton
