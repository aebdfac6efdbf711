#include "cache/index/kv_event_batcher.h"

#include <utility>

#include "common/check.h"

namespace baton {
namespace {

constexpr size_t kEventBytes = 32;  // upper bound for an event without its hashes

}  // namespace

KvEventBatcher::KvEventBatcher(size_t batch_bytes) : batch_bytes_(batch_bytes) {
  CHECK_LE(batch_bytes, kMaxKvEventBatchBytes);
}

void KvEventBatcher::Close() {
  if (open_.empty()) return;
  closed_.push_back(EncodeKvEvents(open_));
  open_.clear();
  open_bytes_ = 0;
}

// REQUIRES: the caller adds a run next, unless the event takes none.
void KvEventBatcher::Begin(KvEvent event) {
  if (open_bytes_ + kEventBytes + 2 * sizeof(Hash128) > batch_bytes_) Close();
  open_.push_back(std::move(event));
  open_bytes_ += kEventBytes;
}

void KvEventBatcher::Add(const Hash128& run) {
  open_.back().hashes.push_back(run);
  open_bytes_ += sizeof(run);
}

bool KvEventBatcher::MayJoin(KvEvent::Kind kind, CacheTier tier) const {
  return open_bytes_ + sizeof(Hash128) <= batch_bytes_ && !open_.empty() &&
         open_.back().kind == kind && open_.back().tier == tier &&
         open_.back().hashes.size() < kMaxHashesPerKvEvent;
}

void KvEventBatcher::Stored(const std::optional<Hash128>& before, const Hash128& run,
                            CacheTier tier) {
  const bool continues =
      before && MayJoin(KvEvent::Kind::kStored, tier) && open_.back().hashes.back() == *before;
  if (!continues) {
    Begin({.kind = KvEvent::Kind::kStored, .tier = tier, .parent = before, .hashes = {}});
  }
  Add(run);
}

void KvEventBatcher::Removed(const Hash128& run, CacheTier tier) {
  if (!MayJoin(KvEvent::Kind::kRemoved, tier)) {
    Begin({.kind = KvEvent::Kind::kRemoved, .tier = tier, .parent = std::nullopt, .hashes = {}});
  }
  Add(run);
}

void KvEventBatcher::Cleared() {
  Begin({.kind = KvEvent::Kind::kCleared, .parent = std::nullopt, .hashes = {}});
}

std::vector<std::string> KvEventBatcher::Take() {
  Close();
  return std::exchange(closed_, {});
}

}  // namespace baton
