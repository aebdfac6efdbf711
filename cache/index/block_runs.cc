#include "cache/index/block_runs.h"

#include <algorithm>
#include <array>
#include <bitset>
#include <utility>

#include "common/check.h"

namespace baton {
namespace {

// Table lookups whose cache lines are prefetched.
constexpr uint32_t kAhead = 32;
// A run that grows block by block (decoding) is followed by a run with room for more blocks.
constexpr uint32_t kGrowingRun = 30;
constexpr uint32_t kOneByOne = 2;

// Upper bound: one cache line for each block. That is the case for runs of one or two blocks.
uint64_t LinesFor(size_t max_blocks) {
  return std::min<uint64_t>(RunStore::kMaxLines, max_blocks + max_blocks / 4 + 2048);
}

// Lines for blocks that are stored several at a time: four hashes in a line, plus an eighth for the
// headers of runs.
uint64_t ExpectedLinesFor(size_t blocks) { return blocks / 4 + blocks / 32; }

}  // namespace

BlockRuns::BlockRuns(size_t max_blocks, size_t expected_blocks, KeySeeds key_seeds,
                     IsRetired is_retired)
    : key_seeds_(key_seeds),
      is_retired_(std::move(is_retired)),
      table_(max_blocks, expected_blocks),
      store_(LinesFor(max_blocks), ExpectedLinesFor(expected_blocks)),
      holders_(&store_) {}

bool BlockRuns::Holds(const BlockLocation& at, const Hash128& hash, RunHead* head) const {
  store_.Prefetch(at.line, at.offset);
  do {
    *head = store_.LoadHead(at.line);
  } while (head->being_changed());
  return at.offset < head->length() && store_.LoadHash(at.line, at.offset) == hash;
}

std::optional<BlockRuns::Found> BlockRuns::Find(const BlockTable::View& view,
                                                const Hash128& hash) const {
  Found found;
  const auto at = BlockTable::Find(view, KeyOf(hash), [&](const BlockLocation& place) {
    return Holds(place, hash, &found.head);
  });
  if (!at) return std::nullopt;
  found.at = *at;
  return found;
}

std::optional<BlockLocation> BlockRuns::Guess(const Hash128& hash) const {
  return BlockTable::Find(table_.view(), KeyOf(hash), [](const BlockLocation&) { return true; });
}

uint32_t BlockRuns::Common(const Found& found, std::span<const Hash128> hashes) const {
  const uint32_t most = std::min<uint64_t>(found.head.length() - found.at.offset, hashes.size());
  uint32_t same = 1;
  while (same < most && store_.LoadHash(found.at.line, found.at.offset + same) == hashes[same]) {
    ++same;
  }
  return same;
}

bool BlockRuns::IsKnown(const Hash128& hash, const BlockLocation& filled) const {
  const auto is_it = [&](const BlockLocation& at) {
    RunHead ignored;
    return at.line == filled.line
               ? at.offset < filled.offset && store_.LoadHash(at.line, at.offset) == hash
               : Holds(at, hash, &ignored);
  };
  return BlockTable::Find(table_.view(), KeyOf(hash), is_it).has_value();
}

uint32_t BlockRuns::Fill(uint32_t line, uint32_t first, std::span<const Hash128> hashes) {
  const auto count =
      static_cast<uint32_t>(std::min(hashes.size(), table_.max_entries() - table_.entries()));
  table_.Reserve(count);
  BlockTable::Row row(table_);
  const KeySeeds key_seeds = key_seeds_;
  RunHashes to = store_.HashesOf(line);
  std::array<uint64_t, 2 * kAhead> bits;  // of the hashes whose table lines are being prefetched
  const auto fetch = [&](uint32_t begin, uint32_t end) {
    for (uint32_t i = begin; i < end; ++i) {
      bits[i % bits.size()] = key_seeds.BitsOf(hashes[i]);
      row.Prefetch(BlockTable::Key(bits[i % bits.size()]));
    }
  };
  fetch(0, std::min(count, kAhead));
  for (uint32_t begin = 0; begin < count; begin += kAhead) {
    const uint32_t end = std::min(count, begin + kAhead);
    fetch(end, std::min(count, end + kAhead));
    for (uint32_t i = begin; i < end; ++i) {
      const Hash128 hash = hashes[i];
      const BlockTable::Key key(bits[i % bits.size()]);
      uint64_t* const home = row.HomeOf(key);
      if (BlockTable::Row::MayHave(home, key)) [[unlikely]] {
        if (IsKnown(hash, {.line = line, .offset = first + i})) return i;
      }
      to.Set(first + i, hash);
      row.Insert(home, key, {.line = line, .offset = first + i});
    }
  }
  return count;
}

uint32_t BlockRuns::Append(HolderId holder, uint32_t line, std::span<const Hash128> hashes) {
  const RunHead head = store_.LoadHead(line);
  const uint32_t room = store_.Capacity(line) - head.length();
  const uint32_t added =
      Fill(line, head.length(), hashes.first(std::min<size_t>(room, hashes.size())));
  if (added == 0) return 0;
  const uint32_t length = head.length() + added;
  store_.BeginChange(line);
  store_.Publish(line, length, head.entries());
  uint64_t refused = 0;
  holders_.Add(line, holder, head.length(), length, &refused);
  if (refused == 0) return added;
  Settle(line);
  return 0;
}

uint32_t BlockRuns::AddNew(HolderId holder, const std::optional<BlockLocation>& after,
                           std::span<const Hash128> hashes) {
  hashes = hashes.first(std::min<size_t>(hashes.size(), RunStore::kMaxRun));
  auto wanted = static_cast<uint32_t>(hashes.size());
  if (after) {
    const RunHead head = store_.LoadHead(after->line);
    if (after->offset + 1 == head.length()) {
      const bool wide =
          // Wide runs are not extended: their holders hold the whole run.
          head.entries() == RunHead::kWide;
      if (!wide && head.length() < store_.Capacity(after->line)) {
        return Append(holder, after->line, hashes);
      }
      if (wanted <= kOneByOne) wanted = std::max(wanted, std::min(2 * head.length(), kGrowingRun));
    }
  }
  const auto line = store_.NewRun(wanted);
  if (!line) return 0;
  const size_t room = std::min<size_t>(store_.Capacity(*line), hashes.size());
  const uint32_t added = Fill(*line, 0, hashes.first(room));
  if (added == 0) {
    store_.Free(*line);
    return 0;
  }
  holders_.Start(added < hashes.size() ? Shrink(*line, added, wanted) : *line, added, holder);
  return added;
}

uint32_t BlockRuns::Shrink(uint32_t line, uint32_t blocks, uint32_t wanted) {
  if (RunStore::ClassForBlocks(blocks) == RunStore::ClassForBlocks(wanted)) return line;
  const auto smaller = store_.NewRun(blocks);
  if (!smaller || store_.Capacity(*smaller) < blocks) {
    if (smaller) store_.Free(*smaller);
    return line;
  }
  for (uint32_t i = 0; i < blocks; ++i) {
    store_.HashesOf(*smaller).Set(i, store_.LoadHash(line, i));
  }
  MoveInTable(line, 0, *smaller, 0, blocks);
  store_.Free(line);
  return *smaller;
}

uint32_t BlockRuns::AddHolder(uint32_t line, HolderId holder, uint32_t begin, uint32_t end,
                              uint64_t* refused) {
  const uint32_t added = holders_.Add(line, holder, begin, end, refused);
  if (added > 0) SplitWhileCrowded(line);
  return added;
}

uint32_t BlockRuns::RemoveHolder(uint32_t line, HolderId holder, uint32_t begin, uint32_t end,
                                 uint64_t* refused) {
  const uint32_t removed = holders_.Remove(line, holder, begin, end, refused);
  if (removed == 0) return 0;
  if (holders_.IsCrowded(line)) {
    SplitWhileCrowded(line);  // gaps make entries, too
  } else {
    Settle(line);
  }
  return removed;
}

void BlockRuns::RemoveRetired(uint32_t line) {
  if (store_.LoadHead(line).length() == 0) return;
  RunHolders::Image image = holders_.Load(line);
  if (!image.RemoveIf(is_retired_)) return;
  // It always fits in the same chunk, because it has fewer holders.
  CHECK(holders_.Store(line, store_.LoadHead(line).length(), image));
  Settle(line);
}

void BlockRuns::EraseFromTable(uint32_t line, uint32_t begin, uint32_t end) {
  {
    BlockTable::Row row(table_);
    const KeySeeds key_seeds = key_seeds_;
    const RunHashes hashes = store_.HashesOf(line);
    // For short stretches, the index has prefetched the table's lines already.
    if (end - begin > kAhead) {
      for (uint32_t i = begin; i < begin + kAhead; ++i) {
        row.Prefetch(key_seeds.KeyOf(hashes.Get(i)));
      }
    }
    for (uint32_t i = begin; i < end; ++i) {
      if (i + kAhead < end) row.Prefetch(key_seeds.KeyOf(hashes.Get(i + kAhead)));
      row.Erase(key_seeds.KeyOf(hashes.Get(i)), {.line = line, .offset = i});
    }
  }
  table_.ShrinkIfSparse();
}

void BlockRuns::MoveInTable(uint32_t from, uint32_t from_offset, uint32_t to, uint32_t to_offset,
                            uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    table_.Move(KeyOf(store_.LoadHash(from, from_offset + i)),
                {.line = from, .offset = from_offset + i}, {.line = to, .offset = to_offset + i});
  }
}

void BlockRuns::Drop(uint32_t line) {
  EraseFromTable(line, 0, store_.LoadHead(line).length());
  holders_.FreeRun(line);
}

bool BlockRuns::Trim(uint32_t line, uint32_t end) {
  const RunHead head = store_.LoadHead(line);
  if (head.entries() == RunHead::kWide) {
    const RunHolders::Image cut = holders_.Load(line).Cut(head.length(), 0, end);
    if (!holders_.Store(line, end, cut)) return false;
  } else {
    store_.BeginChange(line);
    store_.Publish(line, end, head.entries());
  }
  EraseFromTable(line, end, head.length());
  return true;
}

void BlockRuns::Settle(uint32_t line) {
  while (true) {
    const uint32_t end = holders_.HeldEnd(line);
    if (end == 0) return Drop(line);
    if (end < store_.LoadHead(line).length() && !Trim(line, end)) return;
    if (holders_.HeldAtLeast(line) * 2 >= end) return;

    // Less than half is held: split off a new run after the first stretch of held blocks and the
    // gap.
    std::bitset<RunStore::kMaxRun + 1> held;
    const RunHolders::Image& image = holders_.Load(line);
    for (const HolderEntry& entry : image.parts) {
      for (uint32_t i = entry.begin; i < entry.end; ++i) held.set(i);
    }
    uint32_t next = 0;
    while (held[next]) ++next;
    while (!held[next]) ++next;
    const auto rest = Split(line, next);
    if (!rest) return;
    Settle(line);
    line = *rest;
  }
}

std::optional<uint32_t> BlockRuns::Split(uint32_t line, uint32_t at) {
  const uint32_t length = store_.LoadHead(line).length();
  RunHolders::Image image = holders_.Load(line);
  // The new chunk may be one that the current sweep has passed, and would keep retired holders
  // forever.
  image.RemoveIf(is_retired_);
  const auto rest = store_.NewRun(length - at);
  if (!rest) return std::nullopt;
  if (store_.Capacity(*rest) < length - at) {
    store_.Free(*rest);
    return std::nullopt;
  }
  for (uint32_t i = at; i < length; ++i) {
    store_.HashesOf(*rest).Set(i - at, store_.LoadHash(line, i));
  }
  if (!holders_.Store(*rest, length - at, image.Cut(length, at, length))) {
    store_.Free(*rest);
    return std::nullopt;
  }
  // Readers find the blocks at the old or the new place, because the old run is cut last.
  MoveInTable(line, at, *rest, 0, length - at);
  if (!holders_.Store(line, at, image.Cut(length, 0, at))) {
    MoveInTable(*rest, 0, line, at, length - at);
    holders_.FreeRun(*rest);
    return std::nullopt;
  }
  return rest;
}

void BlockRuns::SplitWhileCrowded(uint32_t line) {
  while (holders_.IsCrowded(line)) {
    // Split at the position where most entries begin or end.
    const uint32_t length = store_.LoadHead(line).length();
    std::array<uint32_t, RunStore::kMaxRun + 1> edges{};
    for (const HolderEntry& entry : holders_.Load(line).parts) {
      ++edges[entry.begin];
      ++edges[entry.end];
    }
    const auto at = std::max_element(edges.begin() + 1, edges.begin() + length);
    const auto rest = Split(line, static_cast<uint32_t>(at - edges.begin()));
    Settle(line);
    if (!rest) return;
    Settle(*rest);
    SplitWhileCrowded(*rest);
  }
}

}  // namespace baton
