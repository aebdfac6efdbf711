#include "cache/index/global_index.h"

#include <algorithm>
#include <tuple>

#include "cache/index/prefix_walk.h"

namespace baton {
namespace {

constexpr size_t kMostPrefetched = 64;     // hashes of one call
constexpr size_t kLinesAhead = 32;         // hashes whose cache lines are prefetched
constexpr size_t kWorthFindingParent = 2;  // longer chains begin their own run
constexpr int kChunksPerEvent = 64;        // swept by each event while there are retired holders

// Hashes [begin, end), or those of them that exist.
std::span<const Hash128> Part(std::span<const Hash128> hashes, size_t begin, size_t end) {
  end = std::min(end, hashes.size());
  return begin < end ? hashes.subspan(begin, end - begin) : std::span<const Hash128>();
}

// The order of MatchWorkers.
bool HoldsMore(const HeldPrefix& a, const HeldPrefix& b) {
  return std::tuple(-a.units, a.worker, a.tier) < std::tuple(-b.units, b.worker, b.tier);
}

}  // namespace

// Scope in which one event is applied. It makes events_ odd meanwhile, and sweeps a little at the
// end.
class GlobalIndex::Event {
 public:
  explicit Event(GlobalIndex& index) : index_(index) {
    const uint64_t now = index.events_.load(std::memory_order_relaxed);
    index.events_.store(now + 1, std::memory_order_relaxed);
  }
  ~Event() {
    if (index_.holders_.has_retired()) index_.SweepSome(kChunksPerEvent);
    const uint64_t now = index_.events_.load(std::memory_order_relaxed);
    index_.events_.store(now + 1, std::memory_order_release);
  }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

 private:
  GlobalIndex& index_;
};

GlobalIndex::GlobalIndex(const GlobalIndexOptions& options)
    : runs_(options.max_blocks, options.expected_blocks, options.key_seeds,
            [this](HolderId holder) { return holders_.IsRetired(holder); }) {}

void GlobalIndex::Count(HolderId holder, int64_t added) {
  if (held_.size() <= holder) held_.resize(holder + 1);
  held_[holder] += static_cast<uint32_t>(added);
  memberships_ += static_cast<size_t>(added);
}

void GlobalIndex::Stored(IndexedWorker worker, CacheTier tier, const std::optional<Hash128>& parent,
                         std::span<const Hash128> hashes) {
  const Event event(*this);
  if (hashes.empty()) return;
  const auto holder = holders_.FindOrAdd(worker, tier);
  if (!holder) {
    refused_ += hashes.size();
    return;
  }
  PrefetchTable(Part(hashes, 0, kLinesAhead));
  std::optional<BlockLocation> before;
  if (parent && hashes.size() <= kWorthFindingParent) before = runs_.Guess(*parent);
  int64_t added = 0;
  for (size_t i = 0; i < hashes.size();) {
    const auto rest = hashes.subspan(i);
    if (const auto found = runs_.Find(rest[0])) {
      const uint32_t count = runs_.Common(*found, rest);
      const uint32_t begin = found->at.offset;
      added += runs_.AddHolder(found->at.line, *holder, begin, begin + count, &refused_);
      before = {.line = found->at.line, .offset = begin + count - 1};
      i += count;
      continue;
    }
    const uint32_t count = runs_.AddNew(*holder, before, rest);
    if (count == 0) {
      refused_ += rest.size();
      break;
    }
    added += count;
    before.reset();
    i += count;
  }
  Count(*holder, added);
}

void GlobalIndex::Removed(IndexedWorker worker, CacheTier tier, std::span<const Hash128> hashes) {
  const Event event(*this);
  const auto holder = holders_.Find(worker, tier);
  if (!holder) return;
  const RunStore& store = runs_.store();
  int64_t removed = 0;
  size_t fetched_table = 0;
  size_t fetched_runs = 0;
  for (size_t i = 0; i < hashes.size();) {
    // A run's address comes from the table, so the table's lines are prefetched even earlier.
    fetched_table = std::max(fetched_table, i);
    fetched_runs = std::max(fetched_runs, i);
    for (; fetched_table < std::min(i + 2 * kLinesAhead, hashes.size());
         fetched_table += kLinesAhead) {
      PrefetchTable(Part(hashes, fetched_table, fetched_table + kLinesAhead));
    }
    for (; fetched_runs < std::min(i + kLinesAhead, hashes.size()); fetched_runs += kLinesAhead) {
      PrefetchRuns(Part(hashes, fetched_runs, fetched_runs + kLinesAhead));
    }
    const auto found = runs_.Find(hashes[i]);
    if (!found) {
      ++i;
      continue;
    }
    // Neighbours are removed together, in either order of eviction.
    const uint32_t line = found->at.line;
    uint32_t begin = found->at.offset;
    uint32_t end = begin + 1;
    size_t next = i + 1;
    const auto is_next = [&](uint32_t offset) {
      return next < hashes.size() && store.LoadHash(line, offset) == hashes[next];
    };
    for (; begin > 0 && is_next(begin - 1); ++next) --begin;
    if (begin == found->at.offset) {
      for (; end < found->head.length() && is_next(end); ++next) ++end;
    }
    removed += runs_.RemoveHolder(line, *holder, begin, end, &refused_);
    i = next;
  }
  Count(*holder, -removed);
}

void GlobalIndex::Cleared(IndexedWorker worker) {
  const Event event(*this);
  for (const HolderId holder : holders_.Retire(worker)) {
    if (holder < held_.size()) Count(holder, -int64_t{held_[holder]});
  }
}

size_t GlobalIndex::units(IndexedWorker worker) const {
  size_t units = 0;
  for (int tier = 0; tier < kCacheTiers; ++tier) {
    const auto holder = holders_.Find(worker, static_cast<CacheTier>(tier));
    if (holder && *holder < held_.size()) units += held_[*holder];
  }
  return units;
}

void GlobalIndex::Sweep() {
  while (holders_.has_retired()) SweepSome(1 << 20);
}

void GlobalIndex::SweepSome(int chunks) {
  if (!sweep_line_) {
    sweep_line_ = 0;
    sweep_count_ = holders_.retired();
  }
  const RunStore& store = runs_.store();
  for (; chunks > 0 && *sweep_line_ < store.end_line(); --chunks) {
    const uint32_t line = *sweep_line_;
    sweep_line_ = store.NextChunk(line);
    runs_.RemoveRetired(line);
  }
  if (*sweep_line_ < store.end_line()) return;
  holders_.Recycle(sweep_count_);
  sweep_line_.reset();
}

void GlobalIndex::PrefetchTable(std::span<const Hash128> hashes) const {
  for (const Hash128& hash : hashes.first(std::min(hashes.size(), kMostPrefetched))) {
    runs_.Prefetch(hash);
  }
}

void GlobalIndex::PrefetchRuns(std::span<const Hash128> hashes) const {
  const BlockTable::View view = runs_.table().view();
  // Prefetches for every hash. Neighbours nearly always share a line, but half of an event's runs
  // are very short. Prefetching only every fourth hash would miss them, and each miss costs a
  // separate wait.
  for (const Hash128& hash : hashes.first(std::min(hashes.size(), kMostPrefetched))) {
    BlockTable::Find(view, runs_.KeyOf(hash), [this](const BlockLocation& at) {
      runs_.store().Prefetch(at.line, at.offset);
      return true;
    });
  }
}

void GlobalIndex::Match(std::span<const Hash128> hashes, PrefixMatch& match) const {
  while (!TryMatch(hashes, match)) {
  }
}

// Returns false if a run or the table changed meanwhile.
bool GlobalIndex::TryMatch(std::span<const Hash128> hashes, PrefixMatch& match) const {
  const RunStore& store = runs_.store();
  const uint64_t events = events_.load(std::memory_order_acquire);
  match.assignments_ = holders_.assignments();
  const BlockTable::View view = runs_.table().view();
  // Many sequences share only their first unit. For them this cache line is the only wait.
  if (hashes.size() > 1) BlockTable::Prefetch(view, runs_.KeyOf(hashes[1]));
  PrefixWalk walk(holders_, match);
  for (size_t at = 0; at < hashes.size();) {
    const auto found = runs_.Find(view, hashes[at]);
    if (!found) break;
    const auto [line, offset] = found->at;
    const RunHead head = found->head;
    // The probable beginning of the next run.
    if (const size_t next = at + head.length() - offset; next < hashes.size()) {
      BlockTable::Prefetch(view, runs_.KeyOf(hashes[next]));
    }
    const uint32_t count = runs_.Common(*found, hashes.subspan(at));
    bool anybody;
    if (head.entries() == RunHead::kWide) {
      const uint64_t word1 = LoadWord(store.Words(line) + 1);
      if (store.LoadHead(line) != head) return false;
      anybody = walk.StepWide(RunHolders::Wide(store, word1), offset, count);
    } else {
      anybody = walk.StepInline(store.Words(line), head.entries(), offset, count);
    }
    if (store.LoadHead(line) != head) return false;
    if (!anybody) break;
    at += count;
  }
  walk.End();
  if (!runs_.table().IsCurrent(view) || holders_.assignments() != match.assignments_) return false;
  match.of_one_moment_ = events % 2 == 0 && events_.load(std::memory_order_acquire) == events;
  match.events_ = events / 2;
  return true;
}

std::vector<HeldPrefix> GlobalIndex::MatchWorkers(std::span<const Hash128> hashes) const {
  PrefixMatch match;
  return MatchWorkers(hashes, match);
}

std::vector<HeldPrefix> GlobalIndex::MatchWorkers(std::span<const Hash128> hashes,
                                                  PrefixMatch& match) const {
  std::vector<HeldPrefix> prefixes;
  do {
    Match(hashes, match);
    prefixes.clear();
    match.ForEach([&](HolderId holder, int32_t units) {
      const HolderTable::Owner owner = holders_.owner(holder);
      prefixes.push_back({.worker = owner.worker, .tier = owner.tier, .units = units});
    });
  } while (holders_.assignments() != match.assignments());
  std::sort(prefixes.begin(), prefixes.end(), HoldsMore);
  return prefixes;
}

SomeHolders GlobalIndex::MatchSome(std::span<const Hash128> hashes, size_t most, uint64_t turn,
                                   std::span<const NamedHolder> also) const {
  SomeHolders some;
  std::vector<HeldPrefix>& prefixes = some.prefixes;
  PrefixMatch match;
  do {
    Match(hashes, match);
    prefixes.clear();
    const auto add = [&](HolderId holder, int32_t units) {
      const HolderTable::Owner owner = holders_.owner(holder);
      prefixes.push_back({.worker = owner.worker, .tier = owner.tier, .units = units});
    };
    match.ForDeepest(most, turn, add);
    for (const NamedHolder& named : also) {
      const int32_t units = match.units(named.holder);
      if (units > 0 && holders_.owner(named.holder).worker == named.worker) {
        add(named.holder, units);
      }
    }
  } while (holders_.assignments() != match.assignments());
  std::sort(prefixes.begin(), prefixes.end(), HoldsMore);
  prefixes.erase(std::unique(prefixes.begin(), prefixes.end()), prefixes.end());
  some.different_units = match.DifferentUnits();
  return some;
}

}  // namespace baton
