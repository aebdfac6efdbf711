#include "engine/kv_event_cursor.h"

#include <utility>

#include "common/check.h"

namespace baton {

KvEventCursor::KvEventCursor(const KvEventFeed* feed, uint64_t sequence)
    : feed_(feed), sequence_(sequence <= feed->last() ? sequence : 0) {}

std::optional<KvEventCursor::Message> KvEventCursor::Next() {
  if (snapshot_ != nullptr) return NextPart();
  if (needs_snapshot_) return std::nullopt;
  KvEventLog::Batch batch = feed_->Find(sequence_ + 1);
  if (batch == nullptr) {
    // Check both: the batch may have been published since Find.
    needs_snapshot_ = feed_->last() > sequence_ && feed_->Find(sequence_ + 1) == nullptr;
    return std::nullopt;
  }
  return Message{.sequence = ++sequence_, .events = std::move(batch)};
}

KvEventCursor::Message KvEventCursor::NextPart() {
  const std::string& events = snapshot_->parts[next_part_];
  const auto parts = static_cast<uint32_t>(snapshot_->parts.size());
  Message message{.sequence = snapshot_->sequence,
                  .part = static_cast<uint32_t>(next_part_),
                  .parts = parts,
                  .events = {snapshot_, &events}};
  if (++next_part_ == parts) {
    sequence_ = snapshot_->sequence;
    snapshot_ = nullptr;
    next_part_ = 0;
  }
  return message;
}

void KvEventCursor::Take(std::shared_ptr<const KvEventSnapshot> snapshot) {
  CHECK(needs_snapshot_);
  CHECK(!snapshot->parts.empty());
  needs_snapshot_ = false;
  snapshot_ = std::move(snapshot);
}

}  // namespace baton
