// The cache of prompt chunks: keys, references, caps, and random events against a naive model.
#include "cache/chunk_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "cache/index/kv_event.h"
#include "tests/cache/naive_chunk_cache.h"
#include "tests/common/random_operations.h"

namespace baton {
namespace {

constexpr CacheNamespace kSpace{1}, kOtherSpace{2};

std::vector<TokenId> Text(TokenId first, int32_t length = 8) {
  std::vector<TokenId> tokens(length);
  for (int32_t i = 0; i < length; ++i) tokens[i] = first + i;
  return tokens;
}

ChunkKey KeyOf(const std::vector<TokenId>& tokens, CacheNamespace space = kSpace) {
  return MakeChunkKey(space, ChunkKind::kChunk, std::nullopt, tokens);
}

class ChunkCacheTest : public testing::Test {
 protected:
  // Blocks of 4 tokens.
  void Open(int32_t blocks, const ChunkCacheOptions& options, bool paged = true,
            bool kv_events = false) {
    KvCacheOptions pool;
    pool.num_blocks = blocks;
    pool.max_blocks = 2 * blocks;
    pool.block_size = 4;
    pool.paged = paged;
    if (!paged) pool.kind = CacheKind::kNaive;
    pool.kv_events = kv_events;
    manager_ = std::make_unique<KvCacheManager>(pool, &clock_);
    chunks_ = std::make_unique<ChunkCache>(options, manager_.get());
  }
  void TearDown() override {
    chunks_.reset();
    manager_.reset();
  }
  // Computes and stores a chunk, as a part of a request. The part ends at once.
  ChunkCache::Reference Store(const std::vector<TokenId>& tokens, CacheNamespace space = kSpace) {
    const SequenceId id(next_++);
    const auto length = static_cast<int32_t>(tokens.size());
    EXPECT_TRUE(manager_->BeginPart(id, length).ok());
    EXPECT_TRUE(manager_->Reserve(id, length).ok());
    manager_->Commit(id, UnitsFromTokens(tokens));
    ChunkCache::Reference reference = chunks_->Store({.key = KeyOf(tokens, space),
                                                      .tokens = tokens,
                                                      .position = 7,
                                                      .blocks = manager_->BlockTable(id)});
    manager_->Release(id, /*keep=*/false);
    Check();
    return reference;
  }
  bool Has(const std::vector<TokenId>& tokens, CacheNamespace space = kSpace) const {
    return chunks_->Peek(KeyOf(tokens, space), tokens).has_value();
  }
  void Check() const {
    ASSERT_TRUE(manager_->CheckConservation().ok()) << manager_->CheckConservation();
    ASSERT_TRUE(chunks_->CheckInvariants().ok()) << chunks_->CheckInvariants();
  }

  ManualClock clock_;
  std::unique_ptr<KvCacheManager> manager_;
  std::unique_ptr<ChunkCache> chunks_;
  uint64_t next_ = 1;
};

TEST_F(ChunkCacheTest, AKeyDependsOnEverythingThatTheKvDependsOn) {
  const std::vector<TokenId> tokens = {1, 2, 3};
  const ChunkKey system = MakeChunkKey(kSpace, ChunkKind::kSystem, {}, tokens);
  const ChunkKey other = MakeChunkKey(kSpace, ChunkKind::kSystem, {}, std::vector<TokenId>{1, 2});
  std::vector<ChunkKey> keys = {
      system,
      other,
      MakeChunkKey(kOtherSpace, ChunkKind::kSystem, {}, tokens),
      MakeChunkKey(kSpace, ChunkKind::kChunk, {}, tokens),
      MakeChunkKey(kSpace, ChunkKind::kChunk, system, tokens),
      MakeChunkKey(kSpace, ChunkKind::kChunk, other, tokens),
      MakeChunkKey(kSpace, ChunkKind::kChunk, other, std::vector<TokenId>{3}),
      MakeChunkKey(kSpace, ChunkKind::kPiece, system, tokens),
      MakeChunkKey(kSpace, ChunkKind::kSystem, {}, {}),
  };
  for (size_t i = 0; i < keys.size(); ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_FALSE(keys[i] == keys[j]) << i << " and " << j;
  }
  EXPECT_EQ(system, MakeChunkKey(kSpace, ChunkKind::kSystem, {}, tokens));
}

TEST_F(ChunkCacheTest, AHitComparesTokens) {
  Open(20, {.share = 0.5});
  Store(Text(1));
  EXPECT_FALSE(chunks_->Find(KeyOf(Text(1)), Text(2)));
  EXPECT_FALSE(chunks_->Find(KeyOf(Text(1)), Text(1, 7)));
  const ChunkCache::Reference hit = chunks_->Find(KeyOf(Text(1)), Text(1));
  ASSERT_TRUE(hit);
  EXPECT_EQ(hit.blocks().size(), 2u);
  EXPECT_EQ(hit.tokens(), 8);
  EXPECT_EQ(hit.position(), 7);
  EXPECT_EQ(chunks_->Stats().lookups, 3);
  EXPECT_EQ(chunks_->Stats().hits, 1);
  EXPECT_EQ(chunks_->Stats().misses(), 2);
}

TEST_F(ChunkCacheTest, StoredBlocksAreCachedButNotAvailable) {
  Open(20, {.share = 0.5});
  EXPECT_EQ(manager_->available_blocks(), 20);
  Store(Text(1));
  EXPECT_EQ(manager_->available_blocks(), 18);
  EXPECT_EQ(manager_->Stats().blocks.cached, 2);
  EXPECT_EQ(manager_->Stats().chunk_blocks, 2);
  EXPECT_EQ(manager_->Stats().evictable, 0);
  EXPECT_EQ(chunks_->Clear(), 2);
  EXPECT_EQ(manager_->available_blocks(), 20);
  EXPECT_EQ(manager_->Stats().chunk_blocks, 0);
}

// What an index of the fleet knows after all batches of events.
class Followed {
 public:
  explicit Followed(KvCacheManager* manager) : manager_(manager) {}
  // Applies the latest events, and compares the result with a snapshot.
  std::set<Hash128> Units() {
    for (const std::string& batch : manager_->TakeKvEvents()) Apply(batch, units_);
    std::set<Hash128> all;
    for (const std::string& part : manager_->SnapshotKvEvents()) Apply(part, all);
    EXPECT_EQ(all, units_);
    return units_;
  }

 private:
  static void Apply(const std::string& batch, std::set<Hash128>& units) {
    const auto events = DecodeKvEvents(batch);
    ASSERT_TRUE(events.ok()) << events.status();
    for (const KvEvent& event : *events) {
      if (event.kind == KvEvent::Kind::kCleared) units.clear();
      for (const Hash128& hash : event.hashes) {
        if (event.kind == KvEvent::Kind::kStored) units.insert(hash);
        if (event.kind == KvEvent::Kind::kRemoved) units.erase(hash);
      }
    }
  }

  KvCacheManager* const manager_;
  std::set<Hash128> units_;
};

TEST_F(ChunkCacheTest, KvEventsReportTheEntriesThatCanBeFound) {
  Open(20, {.share = 0.5, .max_entries = 2}, /*paged=*/true, /*kv_events=*/true);
  Followed followed(manager_.get());
  const auto expect = [&](const std::vector<TokenId>& firsts) {
    std::set<Hash128> keys;
    for (const TokenId first : firsts) keys.insert(KeyOf(Text(first)).hash);
    EXPECT_EQ(followed.Units(), keys);
  };
  expect({});
  const ChunkCache::Reference kept = Store(Text(10));
  Store(Text(20));
  expect({10, 20});
  Store(Text(20));
  expect({10, 20});
  Store(Text(30));  // evicts 20
  expect({10, 30});
  manager_->ClearCache();  // of prefixes: the chunks stay
  expect({10, 30});
  chunks_->Clear();  // hides 10, which is referenced
  expect({});
}

TEST_F(ChunkCacheTest, AtTheBudgetTheLeastRecentlyUsedGoes) {
  Open(20, {.share = 0.3});  // 6 blocks, 3 chunks
  for (const TokenId first : {10, 20, 30}) Store(Text(first));
  chunks_->Find(KeyOf(Text(10)), Text(10));
  Store(Text(40));
  EXPECT_TRUE(Has(Text(10)));
  EXPECT_FALSE(Has(Text(20)));
  chunks_->Touch(KeyOf(Text(30)), Text(30));
  Store(Text(50));
  EXPECT_FALSE(Has(Text(10)));
  EXPECT_TRUE(Has(Text(30)));
  EXPECT_EQ(chunks_->Stats().evictions, 2);
  EXPECT_EQ(chunks_->Stats().used_blocks, 6);
}

TEST_F(ChunkCacheTest, AtTheNumberOfEntriesTheLeastRecentlyUsedGoes) {
  Open(20, {.share = 1, .max_entries = 2});
  for (const TokenId first : {10, 20, 30}) Store(Text(first));
  EXPECT_FALSE(Has(Text(10)));
  EXPECT_EQ(chunks_->Stats().entries, 2);
}

TEST_F(ChunkCacheTest, AReferencedChunkStaysAndTheNewOneIsBypassed) {
  Open(20, {.share = 0.2});  // 4 blocks
  const ChunkCache::Reference first = Store(Text(10));
  const ChunkCache::Reference second = Store(Text(20));
  EXPECT_FALSE(Store(Text(30)));
  EXPECT_EQ(chunks_->Stats().bypasses, 1);
  EXPECT_EQ(chunks_->Stats().evictions, 0);
  EXPECT_EQ(manager_->available_blocks(), 16);
  EXPECT_TRUE(Has(Text(10)));
  EXPECT_EQ(chunks_->EvictOne(), 0);
}

TEST_F(ChunkCacheTest, AChunkLargerThanTheBudgetEvictsNothing) {
  Open(20, {.share = 0.2});
  Store(Text(10));
  EXPECT_FALSE(Store(Text(100, 20)));
  EXPECT_TRUE(Has(Text(10)));
}

TEST_F(ChunkCacheTest, AKeyThatIsTakenIsBypassed) {
  Open(20, {.share = 1});
  Store(Text(10));
  EXPECT_FALSE(Store(Text(10)));
  EXPECT_EQ(chunks_->Stats().used_blocks, 2);
}

TEST_F(ChunkCacheTest, OffAndContiguousModeBypassEverything) {
  Open(20, {.share = 0});
  EXPECT_FALSE(Store(Text(10)));
  TearDown();
  Open(20, {.share = 1}, /*paged=*/false);
  EXPECT_FALSE(Store(Text(10)));
  EXPECT_EQ(chunks_->Stats().budget_blocks, 0);
}

TEST_F(ChunkCacheTest, ClearHidesReferencedChunksUntilTheLastReference) {
  Open(20, {.share = 0.5});
  ChunkCache::Reference kept = Store(Text(10));
  Store(Text(20));
  Store(Text(30), kOtherSpace);
  EXPECT_EQ(chunks_->Clear(kSpace), 2);
  EXPECT_FALSE(Has(Text(10)));
  EXPECT_TRUE(Has(Text(30), kOtherSpace));
  EXPECT_EQ(chunks_->Stats().used_blocks, 4);
  EXPECT_EQ(kept.blocks().size(), 2u);
  ChunkCache::Reference again = Store(Text(10));
  EXPECT_EQ(chunks_->Stats().used_blocks, 6);
  kept.Drop();
  Check();
  EXPECT_EQ(chunks_->Stats().used_blocks, 4);
  EXPECT_TRUE(Has(Text(10)));
}

TEST_F(ChunkCacheTest, AShrunkPoolEvictsChunksBehindItsEndAndOverItsBudget) {
  Open(20, {.share = 0.4});  // 8 blocks
  std::vector<ChunkCache::Reference> kept;
  for (const TokenId first : {10, 20, 30, 40}) kept.push_back(Store(Text(first)));
  kept[0].Drop();
  kept[2].Drop();
  ASSERT_TRUE(manager_->Resize(7).ok());  // budget 2; chunk 4 has a block behind the end
  chunks_->PoolResized();
  Check();
  EXPECT_FALSE(Has(Text(10)));
  EXPECT_FALSE(Has(Text(30)));
  EXPECT_TRUE(Has(Text(20)));
  EXPECT_FALSE(Has(Text(40)));
  EXPECT_EQ(manager_->retiring_blocks(), 1);
  kept[3].Drop();
  EXPECT_EQ(manager_->retiring_blocks(), 0);
  kept[1].Drop();
  Check();
  EXPECT_TRUE(Has(Text(20)));
}

TEST_F(ChunkCacheTest, AStepMayOutliveTheChunkThatItReads) {
  Open(20, {.share = 0.5});
  ChunkCache::Reference reference = Store(Text(10));
  const std::vector<BlockId> blocks(reference.blocks().begin(), reference.blocks().end());
  manager_->HoldForStep(blocks);
  reference.Drop();
  EXPECT_EQ(chunks_->EvictOne(), 2);
  Check();
  EXPECT_EQ(manager_->step_blocks(), 2);
  EXPECT_EQ(manager_->available_blocks(), 18);
  manager_->ReleaseStepHold(blocks);
  EXPECT_EQ(manager_->available_blocks(), 20);
}

TEST_F(ChunkCacheTest, EntriesAreListedInTheOrderOfUse) {
  Open(20, {.share = 1});
  Store(Text(10));
  const ChunkCache::Reference kept = Store(Text(20, 5));
  chunks_->Find(KeyOf(Text(10)), Text(10));
  const std::vector<ChunkCache::EntryInfo> entries = chunks_->Entries();
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].tokens, 5);
  EXPECT_EQ(entries[0].references, 1);
  EXPECT_EQ(entries[0].blocks, 2);
  EXPECT_EQ(entries[1].uses, 1);
  EXPECT_EQ(entries[1].references, 0);
}

TEST_F(ChunkCacheTest, AnEntryHasItsAgeAndTheTimeSinceItsLastUse) {
  Open(20, {.share = 1, .clock = &clock_});
  Store(Text(10));
  clock_.AdvanceUs(5);
  chunks_->Peek(KeyOf(Text(10)), Text(10));  // is no use
  EXPECT_EQ(chunks_->Entries()[0].idle_us, 5);
  chunks_->Find(KeyOf(Text(10)), Text(10));
  clock_.AdvanceUs(7);
  EXPECT_EQ(chunks_->Entries()[0].age_us, 12);
  EXPECT_EQ(chunks_->Entries()[0].idle_us, 7);
}

TEST_F(ChunkCacheTest, RandomEventsAgreeWithANaiveModel) {
  constexpr int kSeeds = RandomSeeds(60);
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const int32_t pool = 20 + static_cast<int32_t>(seed) % 30;
    const ChunkCacheOptions options{.share = 0.2 + 0.1 * (seed % 6),
                                    .max_entries = 1 + static_cast<int32_t>(seed) % 7};
    Open(pool, options);
    NaiveChunkCache naive(options.share, pool, options.max_entries);
    struct Held {
      ChunkCache::Reference reference;
      std::shared_ptr<NaiveChunkCache::Entry> entry;
      std::vector<BlockId> blocks;
    };
    std::vector<Held> held;
    const auto text = [](int chunk) { return Text(100 * (chunk + 1), 1 + chunk * 3 % 14); };
    const auto space = [](int chunk) { return chunk % 2 == 0 ? kSpace : kOtherSpace; };
    const auto keep = [&](ChunkCache::Reference reference,
                          const std::shared_ptr<NaiveChunkCache::Entry>& entry) {
      ASSERT_EQ(static_cast<bool>(reference), entry != nullptr);
      if (entry == nullptr) return;
      ++entry->references;
      ASSERT_EQ(reference.blocks().size(), entry->blocks);
      const std::vector<BlockId> blocks(reference.blocks().begin(), reference.blocks().end());
      held.push_back({std::move(reference), entry, blocks});
    };
    for (int i = 0; i < 1500; ++i) {
      const auto chunk = static_cast<int>(random() % 12);
      const std::vector<TokenId> tokens = text(chunk);
      const int32_t blocks = manager_->BlocksFor(static_cast<int32_t>(tokens.size()));
      switch (random() % 10) {
        case 0:
        case 1:
        case 2:
          if (manager_->available_blocks() >= blocks) {
            keep(Store(tokens, space(chunk)), naive.Store(chunk, blocks));
          }
          break;
        case 3:
        case 4:
          keep(chunks_->Find(KeyOf(tokens, space(chunk)), tokens), naive.Find(chunk));
          break;
        case 5:
        case 6:
        case 7:
          if (!held.empty()) {
            std::swap(held[random() % held.size()], held.back());
            // The contents of a referenced chunk never change.
            ASSERT_TRUE(std::equal(held.back().blocks.begin(), held.back().blocks.end(),
                                   held.back().reference.blocks().begin()));
            naive.Drop(held.back().entry);
            held.pop_back();
          }
          break;
        case 8:
          ASSERT_EQ(chunks_->EvictOne() > 0, naive.EvictOne());
          break;
        default: {
          if (random() % 20 > 0) break;
          std::set<int> cleared;
          const bool all = random() % 2 == 0;
          for (int c = 0; c < 12; ++c) {
            if (all || space(c) == kSpace) cleared.insert(c);
          }
          chunks_->Clear(all ? std::nullopt : std::optional(kSpace));
          naive.Clear(cleared);
        }
      }
      Check();
      const ChunkCacheStats stats = chunks_->Stats();
      ASSERT_EQ(stats.used_blocks, naive.used());
      ASSERT_EQ(stats.referenced_blocks, naive.used(/*referenced_only=*/true));
      ASSERT_EQ(stats.entries, naive.visible());
      ASSERT_LE(stats.used_blocks, stats.budget_blocks);
      for (int c = 0; c < 12; ++c) ASSERT_EQ(Has(text(c), space(c)), naive.Has(c)) << c;
      ASSERT_EQ(manager_->available_blocks(), pool - stats.used_blocks);
    }
    held.clear();
    TearDown();
  }
}

}  // namespace
}  // namespace baton
