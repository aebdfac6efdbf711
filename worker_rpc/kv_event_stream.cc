#include "worker_rpc/kv_event_stream.h"

#include <string>
#include <utility>
#include <vector>

#include "rpc/status_conversion.h"

namespace baton {
namespace {

constexpr size_t kMaxUnread = 2;  // it sends one at a time

}  // namespace

KvEventStream::KvEventStream(Engine* engine) : StreamWriter(kMaxUnread), engine_(engine) {}

std::weak_ptr<KvEventStream> KvEventStream::Weak() {
  return std::static_pointer_cast<KvEventStream>(shared_from_this());
}

void KvEventStream::Start(const v1::StreamKvEventsRequest& request,
                          absl::StatusOr<CallGate::Pass> pass) {
  if (!pass.ok()) return End(ToGrpcStatus(pass.status()));
  KvEventFeed* const feed = engine_->kv_events();
  if (feed == nullptr) {
    return End(ToGrpcStatus(absl::FailedPreconditionError("this worker keeps no prefix cache")));
  }
  std::unique_lock lock(mutex_);
  pass_ = *std::move(pass);
  subscription_ = feed->Subscribe([weak = Weak()] {
    if (const std::shared_ptr<KvEventStream> stream = weak.lock()) stream->Pump();
  });
  const uint64_t last = feed->last();
  const bool same_epoch = request.epoch() == engine_->epoch().value();
  // Numbers that were never given are a reader's mistake.
  sequence_ = same_epoch && request.sequence() <= last ? request.sequence() : 0;
  v1::KvEventBatch first;
  first.set_epoch(engine_->epoch().value());
  first.set_sequence(last);
  sending_ = Send(std::move(first));
}

void KvEventStream::StopListening() {
  std::unique_lock lock(mutex_);
  const uint64_t subscription = std::exchange(subscription_, 0);
  lock.unlock();
  if (subscription != 0) engine_->kv_events()->Unsubscribe(subscription);
}

void KvEventStream::OnStreamDone() {
  StopListening();
  std::lock_guard lock(mutex_);
  const CallGate::Pass given_back = std::move(pass_);
}

void KvEventStream::OnDrained() {
  {
    std::lock_guard lock(mutex_);
    sending_ = false;
  }
  Pump();
}

void KvEventStream::Pump() {
  {
    std::lock_guard lock(mutex_);
    if (sending_ || awaits_snapshot_ || subscription_ == 0) return;
    if (std::optional<v1::KvEventBatch> next = NextLocked()) {
      sending_ = Send(*std::move(next));
      return;
    }
    if (!needs_snapshot_) return;
    needs_snapshot_ = false;
    awaits_snapshot_ = true;
  }
  engine_->SnapshotKvEvents([weak = Weak()](auto snapshot) {
    if (const std::shared_ptr<KvEventStream> stream = weak.lock()) {
      stream->OnSnapshot(std::move(snapshot));
    }
  });
}

std::optional<v1::KvEventBatch> KvEventStream::NextLocked() {
  v1::KvEventBatch next;
  next.set_epoch(engine_->epoch().value());
  if (snapshot_ != nullptr) {
    const std::vector<std::string>& parts = snapshot_->parts;
    next.set_sequence(snapshot_->sequence);
    next.set_part(static_cast<uint32_t>(next_part_));
    next.set_parts(static_cast<uint32_t>(parts.size()));
    next.set_events(parts[next_part_++]);
    if (next_part_ == parts.size()) {
      sequence_ = snapshot_->sequence;
      snapshot_ = nullptr;
      next_part_ = 0;
    }
    return next;
  }
  if (needs_snapshot_) return std::nullopt;
  const KvEventFeed& feed = *engine_->kv_events();
  const KvEventLog::Batch batch = feed.Find(sequence_ + 1);
  if (batch == nullptr) {
    needs_snapshot_ = feed.last() > sequence_ && feed.Find(sequence_ + 1) == nullptr;
    return std::nullopt;
  }
  next.set_sequence(++sequence_);
  next.set_events(*batch);
  return next;
}

void KvEventStream::OnSnapshot(absl::StatusOr<std::shared_ptr<const KvEventSnapshot>> snapshot) {
  if (!snapshot.ok()) return End(ToGrpcStatus(snapshot.status()));
  {
    std::lock_guard lock(mutex_);
    awaits_snapshot_ = false;
    snapshot_ = *std::move(snapshot);
  }
  Pump();
}

}  // namespace baton
