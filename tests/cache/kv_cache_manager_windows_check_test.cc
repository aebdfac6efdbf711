// Random sequences with sliding windows, compared with the contents of the slots, with one or two
// steps in flight.
//
// Each slot of each pool stores the hash of all units up to it (slot_contents.h). A step is
// submitted with copies of the block tables, as a runner uploads them. When it is collected, it
// reads and writes through these copies, after any number of other operations.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <random>

#include "cache/kv_cache_manager.h"
#include "tests/cache/slot_contents.h"
#include "tests/common/random_operations.h"

namespace baton {
namespace {

class WindowLives {
 public:
  // Without resizes and transfers, a charged reservation never fails.
  WindowLives(uint32_t seed, const KvCacheOptions& options, int32_t chunk, bool disturbs)
      : random_(seed),
        options_(options),
        chunk_(chunk),
        disturbs_(disturbs),
        cache_(options, &clock_),
        slots_(cache_, options.block_size) {}
  ~WindowLives() {
    while (!steps_.empty()) Collect();
    while (!transfers_.empty()) EndTransfer();
  }

  void Step() {
    switch (random_() % 17) {
      case 0:
      case 1:
      case 2:
        return Admit();
      case 3:
      case 4:
      case 5:
      case 6:
        return steps_.size() < 2 ? Submit() : Collect();
      case 7:
      case 8:
        return Collect();
      case 9:
        return Release();
      case 10:
        if (disturbs_) return random_() % 2 ? StartTransfer() : EndTransfer();
        return;
      case 11:
        if (disturbs_) return HoldPrefix();
        return;
      case 12:
        return Fork();
      case 13:
        if (disturbs_ && random_() % 6 == 0) Resize();
        return;
      case 14:
        return Import();
      case 15:
        if (random_() % 20 == 0) {
          random_() % 2 ? cache_.ClearCache()
                        : cache_.ClearCache(CacheNamespace(1 + random_() % 2));
        }
        return;
      case 16:
        return LandImport();
    }
  }

  void Check() {
    ASSERT_TRUE(cache_.CheckConservation().ok()) << cache_.CheckConservation();
    const KvCacheStats stats = cache_.Stats();
    for (int32_t group = 0; group < cache_.groups(); ++group) {
      const auto& blocks = group == 0 ? stats.blocks : stats.windows[group - 1].blocks;
      ASSERT_EQ(blocks.free + blocks.cached + blocks.owned + blocks.in_transfer,
                cache_.num_blocks(group) + cache_.retiring_blocks(group));
      if (group > 0 && !disturbs_) {
        ASSERT_GE(cache_.num_blocks(group), stats.windows[group - 1].charged);
      }
    }
    for (const auto& [id, life] : lives_) {
      ASSERT_EQ(cache_.committed(id), life.committed);
      uint64_t chain = life.space.low();
      for (int32_t i = 0; i < life.committed; ++i) {
        chain = SlotContents::Chain(chain, life.units[i]);
        for (int32_t group = 0; group < cache_.groups(); ++group) {
          if (!Sees(group, life.committed, i)) continue;
          const std::optional<uint64_t> slot = slots_.Read(group, cache_.BlockTable(id, group), i);
          ASSERT_TRUE(slot.has_value()) << "sequence " << id << " group " << group << " slot " << i;
          ASSERT_EQ(*slot, chain) << "sequence " << id << " group " << group << " slot " << i;
        }
      }
    }
  }

  int64_t hits() const { return hits_; }
  int64_t slid() const { return slid_; }

 private:
  struct Life {
    CacheNamespace space;
    std::vector<CacheUnit> units;  // known units
    int32_t committed = 0;
    int32_t in_flight = 0;  // tokens in steps that are not collected yet
    bool waits_for_kv = false;
  };
  using Map = std::map<SequenceId, Life>;
  using Tables = std::vector<std::vector<BlockId>>;
  struct Chunk {
    SequenceId id;
    int32_t begin = 0, count = 0;
    Tables tables;
    std::vector<CacheUnit> units;  // up to the end of the chunk
    CacheNamespace space;
  };

  Map::iterator Any() {
    return lives_.empty() ? lives_.end() : std::next(lives_.begin(), random_() % lives_.size());
  }
  std::vector<CacheUnit> AnyUnits(int32_t count) {
    std::vector<CacheUnit> units(count);
    for (CacheUnit& unit : units) unit = random_() % 16 == 0 ? 1 : 0;
    return units;
  }
  // Returns true if the token at position `at` sees the slot.
  bool Sees(int32_t group, int32_t at, int32_t slot) const {
    return group == 0 || slot > at - options_.windows[group - 1].window;
  }
  Tables TablesOf(SequenceId id) const {
    Tables tables;
    for (int32_t group = 0; group < cache_.groups(); ++group) {
      const auto table = cache_.BlockTable(id, group);
      tables.emplace_back(table.begin(), table.end());
    }
    return tables;
  }
  // Like a scheduler: begins only what fits, and then the reservation must succeed.
  void Admit() {
    if (lives_.size() == 6) return;
    const CacheNamespace space(1 + random_() % 2);
    const auto units = AnyUnits(1 + random_() % (14 * options_.block_size));
    const auto size = static_cast<int32_t>(units.size());
    const SequenceId id(++next_);
    const BlockCounts needed = cache_.BlocksToAdmit(space, units, size, id);
    if ((cache_.AvailableBlocks() - needed).FirstBelowZero() >= 0) return;
    const int32_t peeked = cache_.PeekMatch(space, units, id);
    const CacheOwner owner{.id = space.low(), .share = 0.25 * (random_() % 4)};
    const auto matched = cache_.Begin(id, space, units, size, random_() % 3, owner);
    ASSERT_TRUE(matched.ok() || !options_.paged) << matched.status();
    if (!matched.ok()) return;
    ASSERT_EQ(*matched, peeked);
    ASSERT_LT(*matched, size);
    hits_ += *matched > 0 ? 1 : 0;
    ASSERT_TRUE(cache_.Reserve(id, size).ok()) << cache_.Reserve(id, size);
    lives_[id] = {.space = space, .units = units, .committed = *matched};
  }

  void Submit() {
    const auto it = Any();
    if (it == lives_.end() || it->second.waits_for_kv) return;
    auto& [id, life] = *it;
    const int32_t begin = life.committed + life.in_flight;
    const bool decodes = begin == static_cast<int32_t>(life.units.size());
    if (decodes) {
      if (life.units.size() >= size_t(20) * options_.block_size) return;
      life.units.push_back(AnyUnits(1)[0]);
    }
    const auto known = static_cast<int32_t>(life.units.size());
    const absl::Status reserved = cache_.Reserve(id, known);
    slots_.Copy(cache_.TakeCopies());
    if (!reserved.ok()) {
      ASSERT_TRUE(decodes || disturbs_) << "a prefill cannot continue: " << reserved;
      if (decodes) life.units.pop_back();
      return;
    }
    Chunk chunk{.id = id,
                .begin = begin,
                .count = std::min<int32_t>(1 + random_() % chunk_, known - begin),
                .tables = TablesOf(id),
                .units = life.units,
                .space = life.space};
    chunk.units.resize(chunk.begin + chunk.count);
    life.in_flight += chunk.count;
    steps_.push_back(std::move(chunk));
  }

  // For each token of the step: reads the slots that it sees through the step's tables, writes its
  // slot.
  void Collect() {
    if (steps_.empty()) return;
    const Chunk chunk = std::move(steps_.front());
    steps_.pop_front();
    const auto it = lives_.find(chunk.id);
    if (it == lives_.end()) return;  // it ended meanwhile: the step's rows are dropped
    std::vector<uint64_t> chains = {chunk.space.low()};
    for (const CacheUnit unit : chunk.units)
      chains.push_back(SlotContents::Chain(chains.back(), unit));
    for (int32_t at = chunk.begin; at < chunk.begin + chunk.count; ++at) {
      for (int32_t group = 0; group < cache_.groups(); ++group) {
        const BlockId block = chunk.tables[group][at / options_.block_size];
        ASSERT_NE(block, kNoBlock) << "group " << group << " has no block to write slot " << at;
        slots_.At(group, block, at) = chains[at + 1];
        for (int32_t slot = 0; slot <= at; ++slot) {
          if (!Sees(group, at, slot)) continue;
          ASSERT_EQ(slots_.Read(group, chunk.tables[group], slot), chains[slot + 1])
              << "group " << group << ": the token at " << at << " sees slot " << slot;
        }
      }
    }
    it->second.in_flight -= chunk.count;
    Commit(*it, chunk.begin + chunk.count);
  }

  void Commit(Map::value_type& entry, int32_t tokens) {
    auto& [id, life] = entry;
    cache_.Commit(id, std::span(life.units).subspan(life.committed, tokens - life.committed));
    life.committed = tokens;
    // Inserting may swap blocks that a later step reads.
    if (life.in_flight == 0 && random_() % 4 > 0) cache_.InsertCommitted(id);
    if (random_() % 4 == 0) return;  // Reserve frees them instead
    const KvCacheStats before = cache_.Stats();
    cache_.FreeBehindWindows(id);
    const KvCacheStats after = cache_.Stats();
    for (size_t w = 0; w < before.windows.size(); ++w) {
      slid_ += after.windows[w].blocks.owned < before.windows[w].blocks.owned ? 1 : 0;
      ASSERT_LE(after.windows[w].charged, before.windows[w].charged);
    }
  }

  // A step may still be on its way to the device. A real sequence may end meanwhile, but its blocks
  // are reused only after the step is collected. This test skips such sequences.
  void Release() {
    const auto it = Any();
    if (it == lives_.end()) return;
    if (it->second.in_flight > 0) return;
    if (random_() % 4 == 0) {
      cache_.Preempt(it->first);
    } else {
      cache_.Release(it->first, random_() % 4 != 0);
    }
    lives_.erase(it);
  }

  void Fork() {
    const auto it = Any();
    if (it == lives_.end() || lives_.size() == 6) return;
    if (it->second.in_flight > 0 || it->second.waits_for_kv) return;
    const Life life = it->second;
    if (life.committed < static_cast<int32_t>(life.units.size())) return;
    const SequenceId child(++next_);
    const absl::Status forked = cache_.Fork(it->first, child);
    if (!options_.paged) {
      ASSERT_EQ(forked.code(), absl::StatusCode::kFailedPrecondition);
    }
    if (forked.ok()) {
      lives_[child] = life;
    } else {
      ASSERT_FALSE(cache_.Contains(child));
    }
  }

  // The decode side of a hand-off: the missing part arrives later, for windows only the end.
  void Import() {
    if (lives_.size() == 6 || !options_.paged) return;
    const CacheNamespace space(1 + random_() % 2);
    auto units = AnyUnits(1 + random_() % (14 * options_.block_size));
    const SequenceId id(++next_);
    int32_t matched = 0;
    if (random_() % 2 == 0) {
      units.resize(std::max<size_t>(1, units.size() / options_.block_size) * options_.block_size);
      const BlockCounts available = cache_.AvailableBlocks();
      const int32_t spare = random_() % 3;
      const auto begun = cache_.BeginImport(id, space, units, spare, random_() % 3);
      if (options_.kind != CacheKind::kRadix) {
        ASSERT_EQ(begun.status().code(), absl::StatusCode::kFailedPrecondition);
        return;
      }
      if (!begun.ok()) {
        ASSERT_EQ(cache_.AvailableBlocks(), available) << "a refused import takes no block";
        return;
      }
      matched = *begun;
    } else {
      const auto size = static_cast<int32_t>(units.size());
      const BlockCounts needed = cache_.BlocksToAdmit(space, units, size, id);
      if ((cache_.AvailableBlocks() - needed).FirstBelowZero() >= 0) return;
      matched = *cache_.Begin(id, space, units, size);
      if (!cache_.ReserveForImport(id, size).ok()) return cache_.Release(id, false);
    }
    lives_[id] = {.space = space, .units = units, .committed = matched, .waits_for_kv = true};
  }

  // All of the import arrives, or only a leading part. The sequence continues at the longest whole
  // boundary.
  void LandImport() {
    for (auto& entry : lives_) {
      auto& [id, life] = entry;
      if (!life.waits_for_kv) continue;
      life.waits_for_kv = false;
      const auto size = static_cast<int32_t>(life.units.size());
      const int32_t landed =
          random_() % 2
              ? size
              : life.committed + static_cast<int32_t>(random_() % (size - life.committed + 1));
      uint64_t chain = life.space.low();
      for (int32_t i = 0; i < landed; ++i) {
        chain = SlotContents::Chain(chain, life.units[i]);
        if (i < life.committed) continue;
        for (int32_t group = 0; group < cache_.groups(); ++group) {
          const BlockId block = cache_.BlockTable(id, group)[i / options_.block_size];
          if (block != kNoBlock) slots_.At(group, block, i) = chain;
        }
      }
      const int32_t whole = cache_.WholeBoundary(id, landed, size);
      ASSERT_GE(whole, life.committed);
      if (landed == size) {
        ASSERT_EQ(whole, size);
      }
      Commit(entry, whole);
      const absl::Status reserved = cache_.Reserve(id, size);
      ASSERT_TRUE(disturbs_ || reserved.ok())
          << "cannot compute the part that did not arrive: " << reserved;
      return;
    }
  }

  void StartTransfer() {
    const auto it = Any();
    if (it == lives_.end()) return;
    Transfer transfer;
    for (int32_t group = 0; group < cache_.groups(); ++group) {
      auto& blocks = transfer.emplace_back();
      for (const BlockId block : cache_.BlockTable(it->first, group)) {
        if (block != kNoBlock && random_() % 2) blocks.push_back(block);
      }
      cache_.HoldForTransfer(blocks, group);
    }
    transfers_.push_back(std::move(transfer));
  }
  void EndTransfer() {
    if (transfers_.empty()) return;
    const size_t which = random_() % transfers_.size();
    for (int32_t group = 0; group < cache_.groups(); ++group) {
      cache_.ReleaseTransferHold(transfers_[which][group], group);
    }
    transfers_.erase(transfers_.begin() + which);
  }

  // An export must have the window blocks that the next token sees.
  void HoldPrefix() {
    const CacheNamespace space(1 + random_() % 2);
    const auto units = AnyUnits((1 + random_() % 10) * options_.block_size);
    const int32_t first = random_() % 4;
    const HeldBlocks held = cache_.HoldPrefix(space, units, first);
    if (held.blocks.empty()) return;
    const int32_t boundary =
        (first + static_cast<int32_t>(held.blocks.size())) * options_.block_size;
    std::vector<uint64_t> chains = {space.low()};
    for (const CacheUnit unit : units) chains.push_back(SlotContents::Chain(chains.back(), unit));
    Transfer transfer = {held.blocks};
    for (int32_t slot = first * options_.block_size; slot < boundary; ++slot) {
      const int32_t at = slot / options_.block_size;
      ASSERT_EQ(slots_.At(0, held.blocks[at - first], slot), chains[slot + 1]);
      for (int32_t group = 1; group < cache_.groups(); ++group) {
        const HeldBlocks::Window& window = held.windows[group - 1];
        if (!Sees(group, boundary, slot)) continue;
        ASSERT_GE(at, window.first);
        ASSERT_LT(at - window.first, static_cast<int32_t>(window.blocks.size()));
        ASSERT_EQ(slots_.At(group, window.blocks[at - window.first], slot), chains[slot + 1]);
      }
    }
    for (const HeldBlocks::Window& window : held.windows) transfer.push_back(window.blocks);
    transfers_.push_back(std::move(transfer));
  }

  void Resize() {
    const int32_t group = random_() % cache_.groups();
    const int32_t most = cache_.max_blocks(group);
    ASSERT_TRUE(cache_.Resize(most / 2 + random_() % (most - most / 2) + 1, group).ok());
  }

  std::mt19937 random_;
  const KvCacheOptions options_;
  const int32_t chunk_;
  const bool disturbs_;
  ManualClock clock_;
  KvCacheManager cache_;
  SlotContents slots_;
  Map lives_;
  std::deque<Chunk> steps_;
  using Transfer = std::vector<std::vector<BlockId>>;
  std::vector<Transfer> transfers_;
  uint64_t next_ = 0;
  int64_t hits_ = 0, slid_ = 0;
};

TEST(KvCacheManagerWindowsCheck, EveryTokenSeesItsOwnKvInEveryGroupWithTwoStepsInFlight) {
  constexpr int kSeeds = RandomSeeds(40), kSteps = 30'000;
  int64_t hits = 0, slid = 0;
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    KvCacheOptions options;
    options.block_size = 1 << (seed % 4);
    const int32_t chunk = 1 + random() % (3 * options.block_size);
    options.max_step_tokens = 2 * chunk;
    options.num_blocks = options.max_blocks = 40 + random() % 40;
    for (uint32_t w = 0; w <= seed % 2; ++w) {
      const int32_t blocks = 20 + random() % 30;
      options.windows.push_back(
          {.window = static_cast<int32_t>(1 + (random() + 7 * w) % (5 * options.block_size)),
           .num_blocks = blocks,
           .max_blocks = blocks});
    }
    options.high_water = seed % 4 == 0 ? 0.9 : 1.0;
    options.low_water = options.high_water - 0.1;
    options.paged = seed % 9 != 0;
    options.kind = !options.paged || seed % 5 == 0 ? CacheKind::kNaive
                   : seed % 5 == 1                 ? CacheKind::kChunkOnly
                                                   : CacheKind::kRadix;
    options.eviction_policy = static_cast<EvictionPolicy>(seed % kEvictionPolicies);
    options.min_prefix_tokens = seed % 3 == 0 ? 5 : 0;
    options.record_trace = seed % 2 == 0;
    WindowLives lives(seed, options, chunk, /*disturbs=*/seed % 3 == 1);
    for (int step = 0; step < kSteps; ++step) {
      lives.Step();
      ASSERT_FALSE(testing::Test::HasFatalFailure()) << "step " << step;
      lives.Check();
      ASSERT_FALSE(testing::Test::HasFatalFailure()) << "step " << step;
    }
    hits += lives.hits();
    slid += lives.slid();
  }
  EXPECT_GT(hits, 25 * kSeeds);
  EXPECT_GT(slid, 25 * kSeeds);
  ReportRandomOperations(kSeeds * kSteps);
}

}  // namespace
}  // namespace baton
