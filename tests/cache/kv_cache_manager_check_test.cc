// Random sequences, compared with the contents of the slots.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "cache/kv_cache_manager.h"
#include "tests/common/random_operations.h"

namespace baton {
namespace {

// Stores the contents of each slot of the pool: the hash of all units up to it. After every
// operation, every sequence must find its own prefix through its table.
class Lives {
 public:
  Lives(uint32_t seed, const KvCacheOptions& options)
      : random_(seed),
        options_(options),
        cache_(options, &clock_),
        slots_(size_t(options.max_blocks) * options.block_size) {}
  ~Lives() {
    while (!transfers_.empty()) EndTransfer();
    for (const auto& held : steps_) cache_.ReleaseStepHold(held);
  }

  void Step() {
    switch (random_() % 14) {
      case 0:
      case 1:
        Begin();
        break;
      case 2:
      case 3:
      case 4:
        Grow();
        break;
      case 5:
        if (const auto it = Any(); it != lives_.end()) cache_.InsertCommitted(it->first);
        break;
      case 6:
        Release();
        break;
      case 7:
        random_() % 2 ? StartTransfer() : EndTransfer();
        break;
      case 8:
        if (random_() % 20 == 0) {
          random_() % 2 ? cache_.ClearCache() : cache_.ClearCache(CacheNamespace(random_() % 3));
        }
        break;
      case 9:
        Fork();
        break;
      case 10:
        if (random_() % 10 == 0) {
          ASSERT_TRUE(cache_.Resize(1 + random_() % options_.max_blocks).ok());
        }
        break;
      case 11:
        PrepareStep();
        break;
      case 12:
        BeginImport();
        break;
      case 13:
        HoldPrefix();
        break;
    }
    Check();
  }

 private:
  struct Life {
    CacheNamespace space;
    std::vector<CacheUnit> units;  // committed units
    int32_t max_tokens;
  };
  using Map = std::map<SequenceId, Life>;

  Map::iterator Any() {
    return lives_.empty() ? lives_.end() : std::next(lives_.begin(), random_() % lives_.size());
  }
  CacheOwner AnyOwner(CacheNamespace space) {
    return {.id = space.low(), .share = 0.25 * (random_() % 4)};
  }
  CacheUnit AnyUnit() { return random_() % 6 == 0 ? 1 : 0; }
  uint64_t& Slot(SequenceId id, int32_t slot) {
    const BlockId block = cache_.BlockTable(id)[slot / options_.block_size];
    return slots_[size_t(block.value()) * options_.block_size + slot % options_.block_size];
  }
  static uint64_t Chain(uint64_t before, CacheUnit unit) {
    return (before * 31 + unit + 1) * 0x9E3779B97F4A7C15ull;
  }

  void Begin() {
    if (lives_.size() == 6) return Release();
    std::vector<CacheUnit> units(1 + random_() % 30);
    for (CacheUnit& unit : units) unit = AnyUnit();
    const CacheNamespace space(1 + random_() % 2);
    const int32_t max_tokens = static_cast<int32_t>(units.size()) + random_() % 10;
    const SequenceId id(++next_);
    const int32_t peeked = cache_.PeekMatch(space, units, id);
    const auto matched = cache_.Begin(id, space, units, max_tokens, random_() % 3, AnyOwner(space));
    if (!matched.ok()) {
      ASSERT_FALSE(options_.paged);
      return;
    }
    ASSERT_EQ(*matched, peeked);
    ASSERT_LT(*matched, static_cast<int32_t>(units.size()));
    ASSERT_TRUE(*matched == 0 || *matched >= options_.min_prefix_tokens);
    units.resize(*matched);
    lives_[id] = {.space = space, .units = units, .max_tokens = max_tokens};
  }

  std::vector<CacheUnit> AnyWholeBlocks() {
    std::vector<CacheUnit> units((1 + random_() % 6) * options_.block_size);
    for (CacheUnit& unit : units) unit = AnyUnit();
    return units;
  }

  // The part after the cached prefix arrives later, in Grow.
  void BeginImport() {
    if (lives_.size() == 6) return Release();
    const CacheNamespace space(1 + random_() % 2);
    const auto units = AnyWholeBlocks();
    const SequenceId id(++next_);
    const int32_t spare = random_() % 4;
    const int32_t available = cache_.available_blocks();
    const auto cached = cache_.BeginImport(id, space, units, spare, random_() % 3, AnyOwner(space));
    if (options_.kind != CacheKind::kRadix) {
      ASSERT_EQ(cached.status().code(), absl::StatusCode::kFailedPrecondition);
      return;
    }
    if (!cached.ok()) {
      ASSERT_EQ(cache_.available_blocks(), available) << "a refused import takes no block";
      return;
    }
    const auto size = static_cast<int32_t>(units.size());
    if (*cached < size) {
      ASSERT_GE(cache_.available_blocks(), spare);
    }
    ASSERT_EQ(cache_.capacity(id), size);
    lives_[id] = {.space = space,
                  .units = std::vector(units.begin(), units.begin() + *cached),
                  .max_tokens = size};
  }

  void HoldPrefix() {
    const CacheNamespace space(1 + random_() % 2);
    const auto units = AnyWholeBlocks();
    const int32_t first = random_() % 4;
    const int32_t peeked = cache_.PeekMatch(space, units) / options_.block_size;
    const std::vector<BlockId> held = cache_.HoldPrefix(space, units, first).blocks;
    if (options_.kind != CacheKind::kRadix) {
      ASSERT_TRUE(held.empty());
    }
    if (options_.min_prefix_tokens == 0 && options_.kind == CacheKind::kRadix) {
      ASSERT_GE(static_cast<int32_t>(held.size()), peeked - first);
    }
    if (held.empty()) return;  // `first` may be after all units
    uint64_t chain = space.low();
    for (int32_t i = 0; i < (first + static_cast<int32_t>(held.size())) * options_.block_size;
         ++i) {
      chain = Chain(chain, units[i]);
      const int32_t block = i / options_.block_size - first;
      if (block < 0) continue;
      ASSERT_EQ(slots_[size_t(held[block].value()) * options_.block_size + i % options_.block_size],
                chain);
    }
    transfers_.push_back(held);
  }

  void Grow() {
    const auto it = Any();
    if (it == lives_.end()) return;
    auto& [id, life] = *it;
    const int32_t committed = static_cast<int32_t>(life.units.size());
    const int32_t count = std::min<int32_t>(1 + random_() % 9, life.max_tokens - committed);
    const int32_t needed = std::max<int32_t>(0, cache_.BlocksFor(committed + count) -
                                                    int32_t(cache_.BlockTable(id).size())) +
                           WritesSharedBlock(id, committed, count);
    const bool possible = needed <= cache_.available_blocks() || needed == 0;
    ASSERT_EQ(cache_.Reserve(id, committed + count).ok(), possible);
    MakeCopies();
    if (!possible) return;
    uint64_t chain = committed == 0 ? life.space.low() : Slot(id, committed - 1);
    std::vector<CacheUnit> units(count);
    for (int32_t i = 0; i < count; ++i) {
      units[i] = AnyUnit();
      chain = Chain(chain, units[i]);
      Slot(id, committed + i) = chain;
    }
    cache_.Commit(id, units);
    life.units.insert(life.units.end(), units.begin(), units.end());
  }

  void MakeCopies() {
    for (const BlockCopy& copy : cache_.TakeCopies()) {
      for (int32_t i = 0; i < copy.tokens; ++i) {
        slots_[size_t(copy.to.value()) * options_.block_size + i] =
            slots_[size_t(copy.from.value()) * options_.block_size + i];
      }
    }
  }

  // Many operations happen between two steps. The copies are made only at the end.
  void PrepareStep() {
    for (uint32_t events = 2 + random_() % 8; events > 0; --events) {
      const auto it = Any();
      if (it == lives_.end()) break;
      switch (random_() % 5) {
        case 0:
          Release();
          break;
        case 1:
          Fork();
          break;
        default:
          (void)cache_.Reserve(it->first,
                               std::min(it->second.max_tokens, cache_.committed(it->first) + 1));
      }
    }
    MakeCopies();
  }

  bool WritesSharedBlock(SequenceId id, int32_t committed, int32_t count) const {
    if (committed % options_.block_size == 0 || count == 0) return false;
    const BlockId tail = cache_.BlockTable(id)[committed / options_.block_size];
    return std::any_of(lives_.begin(), lives_.end(), [&](const auto& other) {
      const auto table = cache_.BlockTable(other.first);
      return other.first != id && std::find(table.begin(), table.end(), tail) != table.end();
    });
  }

  void Fork() {
    const auto it = Any();
    if (it == lives_.end() || lives_.size() == 6) return;
    const SequenceId child(++next_);
    const Life life = it->second;
    ASSERT_EQ(cache_.Fork(it->first, child).ok(), options_.paged);
    if (options_.paged) lives_[child] = life;
  }

  void Release() {
    const auto it = Any();
    if (it == lives_.end()) return;
    if (random_() % 4 == 0) {
      cache_.Preempt(it->first);
    } else {
      cache_.Release(it->first, random_() % 4 != 0);
    }
    lives_.erase(it);
  }

  void StartTransfer() {
    const auto it = Any();
    if (it == lives_.end()) return;
    std::vector<BlockId> blocks;
    for (const BlockId block : cache_.BlockTable(it->first)) {
      if (random_() % 2) blocks.push_back(block);
    }
    if (random_() % 2) {
      cache_.HoldForTransfer(blocks);
      transfers_.push_back(blocks);
    } else {
      cache_.HoldForStep(blocks);
      steps_.push_back(blocks);
    }
  }

  void EndTransfer() {
    if (!steps_.empty() && random_() % 2) {
      cache_.ReleaseStepHold(steps_.front());
      steps_.erase(steps_.begin());
    }
    if (transfers_.empty()) return;
    const size_t which = random_() % transfers_.size();
    cache_.ReleaseTransferHold(transfers_[which]);
    transfers_.erase(transfers_.begin() + which);
  }

  void Check() {
    ASSERT_TRUE(cache_.CheckConservation().ok()) << cache_.CheckConservation();
    const KvCacheStats stats = cache_.Stats();
    ASSERT_EQ(stats.blocks.free + stats.blocks.cached + stats.blocks.owned +
                  stats.blocks.in_transfer + stats.blocks.step,
              cache_.num_blocks() + cache_.retiring_blocks());
    ASSERT_LE(stats.evictable, stats.blocks.cached);
    for (const auto& [id, life] : lives_) {
      ASSERT_EQ(cache_.committed(id), static_cast<int32_t>(life.units.size()));
      uint64_t chain = life.space.low();
      for (int32_t i = 0; i < static_cast<int32_t>(life.units.size()); ++i) {
        chain = Chain(chain, life.units[i]);
        ASSERT_EQ(Slot(id, i), chain) << "sequence " << id << " slot " << i;
      }
    }
  }

  std::mt19937 random_;
  const KvCacheOptions options_;
  ManualClock clock_;
  KvCacheManager cache_;
  std::vector<uint64_t> slots_;
  Map lives_;
  std::vector<std::vector<BlockId>> transfers_;
  std::vector<std::vector<BlockId>> steps_;
  uint64_t next_ = 0;
};

TEST(KvCacheManagerCheck, EverySequenceFindsItsOwnKvAndEveryBlockIsAccountedFor) {
  constexpr int kSeeds = RandomSeeds(30), kSteps = 50'000;
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    KvCacheOptions options;
    options.num_blocks = 8 + 7 * (seed % 5);
    options.max_blocks = options.num_blocks + 5;
    options.block_size = 1 << (seed % 4);
    options.high_water = seed % 4 == 0 ? 0.9 : 1.0;
    options.low_water = options.high_water - 0.1;
    options.paged = seed % 7 != 0;
    options.kind = !options.paged || seed % 5 == 0 ? CacheKind::kNaive
                   : seed % 5 == 1                 ? CacheKind::kChunkOnly
                                                   : CacheKind::kRadix;
    options.eviction_policy = static_cast<EvictionPolicy>(seed % kEvictionPolicies);
    options.min_prefix_tokens = seed % 3 == 0 ? 5 : 0;
    options.record_trace = seed % 2 == 0;
    Lives lives(seed, options);
    for (int step = 0; step < kSteps; ++step) {
      lives.Step();
      ASSERT_FALSE(testing::Test::HasFatalFailure()) << "step " << step;
    }
  }
  ReportRandomOperations(kSeeds * kSteps);
}

}  // namespace
}  // namespace baton
