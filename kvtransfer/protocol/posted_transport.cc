#include "kvtransfer/protocol/posted_transport.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "kvtransfer/protocol/hello_fields.h"
#include "kvtransfer/protocol/receive_session.h"
#include "kvtransfer/protocol/send_session.h"
#include "kvtransfer/protocol/transfer_frame.h"
#include "kvtransfer/protocol/transfer_plan.h"

namespace baton {

using Kind = TransferEvent::Kind;

namespace {

absl::Status CheckGroupsTold(const KvFingerprint& fingerprint, const KvPoolLayout& layout) {
  KvCacheSpec spec;
  for (int32_t group = 0; group < layout.groups(); ++group) {
    spec.groups.push_back(layout.group(group).group());
  }
  KvFingerprint pool;
  DescribeGroups(spec, pool);
  if (fingerprint.groups != pool.groups) {
    return absl::InvalidArgumentError(absl::StrCat("the fingerprint says KV groups \"",
                                                   fingerprint.groups, "\", the pool has \"",
                                                   pool.groups, "\""));
  }
  if (layout.groups() > 1 && fingerprint.protocol.oldest < kGroupsProtocolVersion) {
    return absl::InvalidArgumentError(
        absl::StrCat("the fingerprint says protocol ", fingerprint.protocol.ToString(),
                     ", several KV groups need ", kGroupsProtocolVersion, " at least"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckTransportOptions(const TransportOptions& options) {
  RETURN_IF_ERROR(CheckFingerprintFits(options.fingerprint));
  if (options.pool == nullptr) return absl::InvalidArgumentError("pool is null");
  const KvPoolLayout& layout = options.pool->layout();
  const KvGeometry cut{layout.kind(), layout.block_size()};
  ASSIGN_OR_RETURN(const KvGeometry told, GeometryOf(options.fingerprint));
  if (told != cut) {
    return absl::InvalidArgumentError(
        absl::StrFormat("the fingerprint says %s blocks of %d tokens, the pool has %s blocks of %d",
                        KvLayoutKindName(told.layout), told.block_size,
                        KvLayoutKindName(cut.layout), cut.block_size));
  }
  RETURN_IF_ERROR(CheckGroupsTold(options.fingerprint, layout));
  const int64_t pieces = PieceCount(layout);
  if (pieces > static_cast<int64_t>(kMaxPieces)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("a block has %d pieces, the limit is %d", pieces, kMaxPieces));
  }
  if (layout.layers() > kMaxLayers) {
    return absl::InvalidArgumentError(
        absl::StrFormat("the model has %d layers, the limit is %d", layout.layers(), kMaxLayers));
  }
  if (options.max_transfers < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_transfers ", options.max_transfers, " is below the minimum of 1"));
  }
  return absl::OkStatus();
}

PostedTransport::PostedTransport(const TransportOptions& options)
    : layout_(options.pool->layout()),
      epoch_(options.epoch),
      max_transfers_(options.max_transfers),
      waker_(options.waker) {}

absl::Status PostedTransport::CheckRoom(const absl::flat_hash_set<uint64_t>& live,
                                        const char* what) const {
  if (static_cast<int64_t>(live.size()) < max_transfers_) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrFormat("%d transfers are %s, the limit is %d", live.size(), what, max_transfers_));
}

absl::Status PostedTransport::Expect(ReceiveSpec spec) {
  RETURN_IF_ERROR(CheckReceiveSpec(layout_, spec));
  if (receiving_.contains(spec.transfer_id)) {
    return absl::AlreadyExistsError(
        absl::StrCat("transfer ", spec.transfer_id, " is already expected"));
  }
  RETURN_IF_ERROR(CheckRoom(receiving_, "expected"));
  receiving_.insert(spec.transfer_id);
  Post(std::move(spec));
  return absl::OkStatus();
}

absl::Status PostedTransport::StartSend(SendSpec spec) {
  RETURN_IF_ERROR(CheckSendSpec(layout_, spec));
  RETURN_IF_ERROR(CheckAddress(spec.ticket.address));
  if (sending_.contains(spec.sender_transfer)) {
    return absl::AlreadyExistsError(
        absl::StrCat("transfer ", spec.sender_transfer, " is already being sent"));
  }
  RETURN_IF_ERROR(CheckRoom(sending_, "being sent"));
  sending_.insert(spec.sender_transfer);
  Post(std::move(spec), Wake::kForStart);
  return absl::OkStatus();
}

void PostedTransport::CancelReceive(uint64_t transfer_id) {
  if (receiving_.contains(transfer_id)) Post(CancelReceiveCommand{transfer_id});
}

void PostedTransport::Announce(uint64_t sender_transfer, std::span<const BlockId> blocks,
                               bool final, std::string manifest) {
  if (!sending_.contains(sender_transfer)) return;
  Post(AnnounceCommand{
      sender_transfer, {blocks.begin(), blocks.end()}, final, std::move(manifest), NowUs()});
}

void PostedTransport::AnnounceLayers(uint64_t sender_transfer, std::span<const BlockId> rest,
                                     int32_t layers) {
  if (!sending_.contains(sender_transfer)) return;
  Post(AnnounceLayersCommand{sender_transfer, {rest.begin(), rest.end()}, layers});
}

void PostedTransport::CancelSend(uint64_t sender_transfer) {
  if (sending_.contains(sender_transfer)) Post(CancelSendCommand{sender_transfer});
}

void PostedTransport::Written(std::span<const BlockId> full, std::span<const BlockId> part,
                              int32_t group) {
  if (full.empty() && part.empty()) return;
  Post(WrittenCommand{{full.begin(), full.end()}, {part.begin(), part.end()}, group}, Wake::kLater);
}

void PostedTransport::Post(TransferCommand command, Wake wake) {
  {
    const std::lock_guard lock(mutex_);
    commands_.push_back(std::move(command));
  }
  if (wake == Wake::kNow) WakeIoThread();
  if (wake == Wake::kForStart) WakeForStart();
}

std::vector<TransferCommand> PostedTransport::TakeCommands() {
  std::vector<TransferCommand> commands;
  TakeCommands(commands);
  return commands;
}

void PostedTransport::TakeCommands(std::vector<TransferCommand>& commands) {
  const std::lock_guard lock(mutex_);
  commands_.swap(commands);
}

void PostedTransport::Queue(std::vector<TransferEvent> events) {
  if (events.empty()) return;
  {
    const std::lock_guard lock(mutex_);
    for (TransferEvent& event : events) {
      // Progress counts are cumulative, so only the latest event is kept. A slow engine costs no
      // memory.
      const bool replaces = !events_.empty() && events_.back().kind == Kind::kReceiving &&
                            events_.back().id == event.id && event.kind == Kind::kReceiving;
      if (replaces) events_.pop_back();
      events_.push_back(std::move(event));
    }
    has_events_ = true;
  }
  engine_sleeps_on_ = true;
}

void PostedTransport::WakeEngine() {
  if (std::exchange(engine_sleeps_on_, false) && waker_) waker_();
}

std::vector<TransferEvent> PostedTransport::Poll() {
  std::vector<TransferEvent> events;
  if (!has_events_) return events;
  {
    const std::lock_guard lock(mutex_);
    events.swap(events_);
    has_events_ = false;
  }
  for (const TransferEvent& event : events) {
    if (event.kind == Kind::kReceived || event.kind == Kind::kReceiveFailed) {
      receiving_.erase(event.id);
    } else if (event.kind == Kind::kSent || event.kind == Kind::kSendFailed) {
      sending_.erase(event.id);
    }
  }
  return events;
}

}  // namespace baton
