#include "router/fleet_index.h"

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace baton {

FleetIndex::FleetIndex(const FleetIndexOptions& options)
    : options_(options),
      index_(
          {.max_blocks = options.max_units, .expected_blocks = 0, .key_seeds = options.key_seeds}) {
  ShowTotals();
}

// ---- never waits for an event -------------------------------------------------------------------

SomeHolders FleetIndex::MatchSome(std::span<const Hash128> hashes, size_t most, uint64_t turn,
                                  std::span<const IndexedWorker> also) const {
  std::vector<NamedHolder> holders;
  holders.reserve(also.size());
  {
    std::lock_guard lock(state_mutex_);
    for (const IndexedWorker worker : also) {
      const auto it = states_.find(worker);
      if (it == states_.end()) continue;
      for (const std::optional<HolderId>& holder : it->second.holders) {
        if (holder) holders.push_back({.worker = worker, .holder = *holder});
      }
    }
  }
  return index_.MatchSome(hashes, most, turn, holders);
}

bool FleetIndex::IsFollowed(IndexedWorker worker) const {
  std::lock_guard lock(state_mutex_);
  const auto it = states_.find(worker);
  return it != states_.end() && it->second.shown.followed;
}

bool FleetIndex::HaveSettled(std::span<const IndexedWorker> workers, int64_t now_us) const {
  std::lock_guard lock(state_mutex_);
  return std::all_of(workers.begin(), workers.end(), [&](IndexedWorker worker) {
    const auto it = states_.find(worker);
    return it != states_.end() &&
           (it->second.has_settled || now_us - it->second.since_us >= options_.patience_us);
  });
}

FleetIndexStatus FleetIndex::Status() const {
  std::lock_guard lock(state_mutex_);
  FleetIndexStatus status = totals_;
  for (const auto& [worker, state] : states_) {
    status.workers.push_back(state.shown);
    status.gaps += state.shown.gaps;
    status.snapshots += state.shown.snapshots;
  }
  std::sort(status.workers.begin(), status.workers.end(),
            [](const auto& a, const auto& b) { return a.worker < b.worker; });
  return status;
}

void FleetIndex::Interrupted(IndexedWorker worker, const absl::Status& why) {
  std::lock_guard lock(state_mutex_);
  const auto it = states_.find(worker);
  if (it == states_.end()) return;
  it->second.shown.followed = false;
  it->second.shown.trouble =
      why.message().empty() ? absl::StatusCodeToString(why.code()) : std::string(why.message());
}

void FleetIndex::CannotTell(IndexedWorker worker, const absl::Status& why) {
  Interrupted(worker, why);
  std::lock_guard lock(state_mutex_);
  if (const auto it = states_.find(worker); it != states_.end()) it->second.has_settled = true;
}

void FleetIndex::ShowTotals(std::optional<IndexedWorker> departed) {
  FleetIndexStatus totals{.units = index_.blocks(),
                          .memberships = index_.memberships(),
                          .max_units = options_.max_units,
                          .refused_units = index_.refused(),
                          .bytes = index_.bytes(),
                          .gaps = departed_gaps_,
                          .snapshots = departed_snapshots_,
                          .workers = {}};
  std::lock_guard lock(state_mutex_);
  totals_ = std::move(totals);
  if (departed.has_value()) states_.erase(*departed);
}

void FleetIndex::Show(IndexedWorker worker, const Source& source, const absl::Status& taken) {
  const size_t units = index_.units(worker);
  std::array<std::optional<HolderId>, kCacheTiers> holders;
  for (int tier = 0; tier < kCacheTiers; ++tier) {
    holders[static_cast<size_t>(tier)] = index_.Holder(worker, static_cast<CacheTier>(tier));
  }
  std::lock_guard lock(state_mutex_);
  State& state = states_[worker];
  state.holders = holders;
  FollowedWorker& shown = state.shown;
  shown.units = units;
  shown.sequence = source.follower.sequence();
  shown.gaps = source.gaps;
  shown.snapshots = source.snapshots;
  shown.followed = taken.ok() && source.heard && source.follower.ready() &&
                   source.follower.sequence() >= source.target;
  shown.trouble = shown.followed ? ""
                  : taken.ok()   ? absl::StrCat("at batch ", shown.sequence, " of ", source.target)
                                 : std::string(taken.message());
  state.has_settled |= shown.followed;
}

// ---- waits for other writers --------------------------------------------------------------------

void FleetIndex::Add(IndexedWorker worker, Epoch epoch, int64_t now_us) {
  std::lock_guard writer(writer_mutex_);
  sources_.emplace(worker,
                   Source{.epoch = epoch, .follower = KvEventFollower(worker, epoch, &index_)});
  std::lock_guard lock(state_mutex_);
  states_.emplace(worker,
                  State{.shown = {.worker = worker, .epoch = epoch, .trouble = "no KV events yet"},
                        .since_us = now_us});
}

void FleetIndex::Remove(IndexedWorker worker) {
  std::lock_guard writer(writer_mutex_);
  const auto source = sources_.find(worker);
  if (source == sources_.end()) return;
  departed_gaps_ += source->second.gaps;
  departed_snapshots_ += source->second.snapshots;
  sources_.erase(source);
  index_.Cleared(worker);
  index_.Sweep();  // makes room for the events of other workers
  ShowTotals(worker);
}

absl::StatusOr<KvEventPosition> FleetIndex::Position(IndexedWorker worker) const {
  std::lock_guard writer(writer_mutex_);
  const auto it = sources_.find(worker);
  if (it == sources_.end()) return absl::NotFoundError("the worker is gone");
  return KvEventPosition{.epoch = it->second.epoch, .sequence = it->second.follower.sequence()};
}

absl::Status FleetIndex::Take(IndexedWorker worker, const KvEventMessage& message) {
  absl::StatusOr<std::vector<KvEvent>> events = std::vector<KvEvent>();
  if (!message.events.empty()) events = DecodeKvEvents(message.events);
  std::lock_guard writer(writer_mutex_);
  const auto it = sources_.find(worker);
  if (it == sources_.end()) return absl::NotFoundError("the worker is gone");
  Source& source = it->second;
  if (message.epoch != source.epoch) {
    return absl::AbortedError(absl::StrCat("epoch ", message.epoch.value(),
                                           " answers at the worker's address instead of epoch ",
                                           source.epoch.value()));
  }
  const absl::Status taken = events.ok() ? Apply(message, *events, source) : events.status();
  if (!taken.ok()) {
    index_.Cleared(worker);
    source.follower = KvEventFollower(worker, source.epoch, &index_);
  }
  Show(worker, source, taken);
  ShowTotals();
  return taken;
}

absl::Status FleetIndex::Apply(const KvEventMessage& message, std::span<const KvEvent> events,
                               Source& source) {
  KvEventFollower& follower = source.follower;
  if (message.events.empty()) {
    if (message.sequence < follower.sequence()) {
      ++source.gaps;
      return absl::DataLossError(absl::StrCat("the worker's last batch is ", message.sequence,
                                              ", but ", follower.sequence(),
                                              " batches were applied"));
    }
    source.heard = true;
    source.target = message.sequence;
    return absl::OkStatus();
  }
  if (message.parts > 0 && message.part == 0) {
    ++source.snapshots;
    if (follower.sequence() > 0) ++source.gaps;
  }
  const uint64_t before = follower.sequence();
  const KvEventFollower::Outcome outcome =
      message.parts > 0
          ? follower.Snapshot(message.epoch, message.sequence, events, message.part, message.parts)
          : follower.Batch(message.epoch, message.sequence, events);
  if (outcome != KvEventFollower::Outcome::kNeedSnapshot) return absl::OkStatus();
  ++source.gaps;
  return absl::DataLossError(absl::StrCat("batch ", message.sequence, ", part ", message.part,
                                          " of ", message.parts, " does not follow batch ",
                                          before));
}

}  // namespace baton
