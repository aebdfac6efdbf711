#include "cache/index/global_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <span>
#include <vector>

#include "tests/cache/global_index_events.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(GlobalIndex, ReportsTheLeadingUnitsOfEveryWorkerAndTier) {
  GlobalIndex index(Small());
  index.Stored(kA, kDevice, {}, Chain({1, 2, 3}));
  index.Stored(kB, kDevice, {}, Chain({1, 2, 4, 5}));
  index.Stored(kB, kHost, {}, Chain({1}));
  EXPECT_THAT(index.MatchWorkers(Chain({1, 2, 4, 6})),
              ElementsAre(HeldPrefix{kB, kDevice, 3}, HeldPrefix{kA, kDevice, 2},
                          HeldPrefix{kB, kHost, 1}));
  EXPECT_THAT(index.MatchWorkers(Chain({2, 1})), IsEmpty());
  EXPECT_THAT(index.MatchWorkers({}), IsEmpty());
  EXPECT_EQ(index.memberships(), 8u);
  EXPECT_EQ(index.blocks(), 5u);
}

TEST(GlobalIndex, AGapEndsAPrefixUntilItIsStoredAgain) {
  GlobalIndex index(Small());
  const auto chain = Chain(0, 10);
  index.Stored(kA, kDevice, {}, chain);
  index.Stored(kB, kDevice, {}, chain);
  index.Removed(kA, kDevice, std::span(chain).subspan(4, 2));
  EXPECT_THAT(index.MatchWorkers(chain),
              ElementsAre(HeldPrefix{kB, kDevice, 10}, HeldPrefix{kA, kDevice, 4}));
  index.Stored(kA, kDevice, chain[3], std::span(chain).subspan(4, 1));
  EXPECT_THAT(index.MatchWorkers(chain),
              ElementsAre(HeldPrefix{kB, kDevice, 10}, HeldPrefix{kA, kDevice, 5}));
  index.Stored(kA, kDevice, chain[4], std::span(chain).subspan(5, 1));
  EXPECT_THAT(index.MatchWorkers(chain),
              ElementsAre(HeldPrefix{kA, kDevice, 10}, HeldPrefix{kB, kDevice, 10}));
}

TEST(GlobalIndex, FindsBlocksBehindAGapWithoutHolders) {
  GlobalIndex index(Small());
  const auto chain = Chain(0, 6);
  index.Stored(kA, kDevice, {}, chain);
  index.Removed(kA, kDevice, std::span(chain).subspan(0, 2));
  EXPECT_THAT(index.MatchWorkers(chain), IsEmpty());
  EXPECT_THAT(index.MatchWorkers(std::span(chain).subspan(2)),
              ElementsAre(HeldPrefix{kA, kDevice, 4}));
  index.Stored(kB, kDevice, {}, std::span(chain).subspan(0, 3));
  EXPECT_THAT(index.MatchWorkers(chain), ElementsAre(HeldPrefix{kB, kDevice, 3}));
}

TEST(GlobalIndex, AClearedWorkerMatchesNothingAndItsMemoryIsFreed) {
  GlobalIndex index(Small());
  for (uint64_t i = 0; i < 100; ++i) index.Stored(kA, kDevice, {}, Chain(1000 * i, 1 + i % 40));
  index.Stored(kA, kHost, {}, Chain(0, 300));
  const size_t before = index.memberships();
  index.Stored(kB, kDevice, {}, Chain(1000, 2));
  index.Cleared(kA);
  EXPECT_THAT(index.MatchWorkers(Chain(0, 300)), IsEmpty());
  EXPECT_THAT(index.MatchWorkers(Chain(1000, 2)), ElementsAre(HeldPrefix{kB, kDevice, 2}));
  EXPECT_GT(before, 2u);
  EXPECT_EQ(index.memberships(), 2u);
  EXPECT_EQ(index.Holder(kA, kDevice), std::nullopt);
  index.Sweep();
  EXPECT_EQ(index.blocks(), 2u);
  index.Removed(kB, kDevice, Chain(1000, 2));
  EXPECT_EQ(index.blocks(), 0u);
  EXPECT_LE(index.bytes() - index.free_bytes(), kLeastBytes);
  // The worker gets the same number again and holds nothing.
  index.Stored(kA, kDevice, {}, Chain({7}));
  EXPECT_THAT(index.MatchWorkers(Chain({7, 8})), ElementsAre(HeldPrefix{kA, kDevice, 1}));
}

TEST(GlobalIndex, HolderNumbersOfForgottenWorkersAreReused) {
  GlobalIndex index(Small());
  for (uint32_t i = 0; i < 200'000; ++i) {
    index.Stored(IndexedWorker(i), kDevice, {}, Chain({1, 2}));
    ASSERT_THAT(index.MatchWorkers(Chain({1, 2, 3})),
                ElementsAre(HeldPrefix{IndexedWorker(i), kDevice, 2}));
    index.Cleared(IndexedWorker(i));
  }
  EXPECT_EQ(index.refused(), 0u);
}

TEST(GlobalIndex, ARunSplitBehindASweepKeepsNothingOfAForgottenWorker) {
  GlobalIndex index(Small());
  constexpr IndexedWorker kMany{4};
  index.Stored(kMany, kDevice, {}, Chain(0, 10));
  for (uint64_t i = 1; i <= 1000; ++i) index.Stored(kMany, kDevice, {}, Chain(100 * i, 10));
  const auto chain = Chain(200'000, 30);
  const auto begin = std::span(chain).first(20), end = std::span(chain).subspan(20);
  index.Stored(kA, kDevice, {}, chain);
  index.Stored(kB, kDevice, chain[19], end);
  index.Removed(kA, kDevice, end);
  index.Removed(kMany, kDevice, Chain(0, 10));  // a free chunk at the start of memory
  const auto number = index.Holder(kB, kDevice);
  index.Cleared(kB);  // a sweep begins and passes that chunk
  index.Removed(kA, kDevice, std::span(chain).subspan(1, 19));  // splits the run that B was in
  for (uint64_t i = 1; i <= 40; ++i) index.Removed(kC, kDevice, {});  // the sweep ends
  index.Stored(kC, kDevice, {}, begin);
  ASSERT_EQ(index.Holder(kC, kDevice), number);
  EXPECT_THAT(index.MatchWorkers(chain),
              ElementsAre(HeldPrefix{kC, kDevice, 20}, HeldPrefix{kA, kDevice, 1}));
  const size_t memberships = index.memberships();
  index.Removed(kC, kDevice, end);
  EXPECT_EQ(index.memberships(), memberships);
}

TEST(GlobalIndex, RefusesBlocksBeyondItsCapacityAndNeverOverstatesAMatch) {
  GlobalIndex index({.max_blocks = 10, .expected_blocks = 10, .key_seeds = {}});
  index.Stored(kA, kDevice, {}, Chain(0, 8));
  index.Stored(kB, kDevice, {}, Chain(100, 8));
  EXPECT_EQ(index.refused(), 6u);
  EXPECT_EQ(index.blocks(), 10u);
  EXPECT_THAT(index.MatchWorkers(Chain(100, 8)), ElementsAre(HeldPrefix{kB, kDevice, 2}));
  index.Stored(kC, kDevice, {}, Chain(0, 8));  // another holder of known blocks needs no memory
  EXPECT_THAT(index.MatchWorkers(Chain(0, 8)),
              ElementsAre(HeldPrefix{kA, kDevice, 8}, HeldPrefix{kC, kDevice, 8}));
  index.Removed(kA, kDevice, Chain(0, 8));
  index.Removed(kC, kDevice, Chain(0, 8));
  index.Stored(kB, kDevice, {}, Chain(100, 8));
  EXPECT_THAT(index.MatchWorkers(Chain(100, 8)), ElementsAre(HeldPrefix{kB, kDevice, 8}));
}

TEST(GlobalIndex, AMatchMayBeMuchLongerThanARun) {
  GlobalIndex index(Small());
  const auto chain = Chain(0, 5000);
  index.Stored(kA, kDevice, {}, chain);
  index.Stored(kB, kDevice, {}, std::span(chain).first(4321));
  EXPECT_THAT(index.MatchWorkers(chain),
              ElementsAre(HeldPrefix{kA, kDevice, 5000}, HeldPrefix{kB, kDevice, 4321}));
}

TEST(GlobalIndex, ALongEventOfManyRunsTakesEveryBlockAway) {
  GlobalIndex index(Small());
  const auto chain = Chain(0, 700);
  const auto unknown = Chain(5'000, 300);
  for (size_t i = 0; i < chain.size(); i += 7) {
    index.Stored(kA, kDevice, {}, std::span(chain).subspan(i, 7));
  }
  index.Stored(kB, kDevice, {}, chain);
  // In reverse order, as caches evict, with hashes between them that have no holder.
  std::vector<Hash128> gone;
  for (size_t i = chain.size(); i-- > 100;) {
    gone.push_back(chain[i]);
    if (i % 2 == 0) gone.push_back(unknown[i % unknown.size()]);
  }
  index.Removed(kA, kDevice, gone);
  EXPECT_EQ(index.units(kA), 100u);
  EXPECT_THAT(index.MatchWorkers(chain),
              ElementsAre(HeldPrefix{kB, kDevice, 700}, HeldPrefix{kA, kDevice, 100}));
  index.Removed(kB, kDevice, chain);
  EXPECT_EQ(index.blocks(), 100u);
}

TEST(GlobalIndex, BlocksStoredOneByOneShareRuns) {
  GlobalIndex index(Small());
  const auto chain = Chain(0, 2000);
  for (size_t i = 0; i < chain.size(); ++i) {
    index.Stored(kA, kDevice, i > 0 ? std::optional(chain[i - 1]) : std::nullopt,
                 std::span(chain).subspan(i, 1));
  }
  EXPECT_THAT(index.MatchWorkers(chain), ElementsAre(HeldPrefix{kA, kDevice, 2000}));
  // A run for each block would take 64 bytes a block, without the table.
  EXPECT_LT(index.bytes(), 50 * chain.size());
}

TEST(GlobalIndex, ManyHoldersOfDifferentLengthsAreAnsweredExactly) {
  GlobalIndex index(Small());
  LiteralPrefixModel model;
  const auto chain = Chain(0, 200);
  for (uint32_t worker = 0; worker < 300; ++worker) {
    const auto part = std::span(chain).first(1 + worker * 37 % 200);
    index.Stored(IndexedWorker(worker), kDevice, {}, part);
    model.Stored(IndexedWorker(worker), kDevice, part);
    ASSERT_EQ(index.MatchWorkers(chain), model.Match(chain));
  }
  for (uint32_t worker = 0; worker < 300; ++worker) {
    const auto part = std::span(chain).subspan(worker * 53 % 200, 1);
    index.Removed(IndexedWorker(worker), kDevice, part);
    model.Removed(IndexedWorker(worker), kDevice, part);
    ASSERT_EQ(index.MatchWorkers(chain), model.Match(chain));
    ASSERT_EQ(index.memberships(), model.memberships());
  }
}

}  // namespace
}  // namespace baton
