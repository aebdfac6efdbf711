// GlobalIndex::MatchSome, compared with MatchWorkers.

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <set>
#include <vector>

#include "tests/cache/global_index_events.h"

namespace baton {
namespace {

std::vector<NamedHolder> Named(const GlobalIndex& index,
                               const std::vector<IndexedWorker>& workers) {
  std::vector<NamedHolder> named;
  for (const IndexedWorker worker : workers) {
    const std::optional<HolderId> holder = index.Holder(worker, kDevice);
    if (holder) named.push_back({.worker = worker, .holder = *holder});
  }
  return named;
}

TEST(MatchSome, GivesTheDeepestHoldersAndTheNamedOnes) {
  constexpr uint32_t kWorkers = 300;
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    GlobalIndex index(Small());
    const std::vector<Hash128> chain = Chain(0, 64);
    for (uint32_t worker = 1; worker <= kWorkers; ++worker) {
      // Most workers share a short prefix, as of a system prompt.
      const size_t units = random() % 4 > 0 ? 8 : random() % 64;
      index.Stored(IndexedWorker(worker), kDevice, std::nullopt, std::span(chain).first(units));
    }
    const std::vector<HeldPrefix> all = index.MatchWorkers(chain);
    std::set<int32_t> different;
    for (const HeldPrefix& prefix : all) different.insert(prefix.units);
    for (const size_t most : {0u, 1u, 7u, 40u, 1000u}) {
      const std::vector<IndexedWorker> also = {IndexedWorker(1 + random() % kWorkers),
                                               IndexedWorker(1 + random() % kWorkers)};
      const SomeHolders some = index.MatchSome(chain, most, random(), Named(index, also));
      EXPECT_EQ(some.different_units, std::vector<int32_t>(different.begin(), different.end()));
      const auto has = [&](const HeldPrefix& prefix) {
        return std::find(some.prefixes.begin(), some.prefixes.end(), prefix) != some.prefixes.end();
      };
      const size_t expected = std::min(most, all.size());
      EXPECT_GE(some.prefixes.size(), expected);
      EXPECT_LE(some.prefixes.size(), expected + also.size());
      for (size_t i = 0; i < all.size(); ++i) {
        const bool is_named = std::find(also.begin(), also.end(), all[i].worker) != also.end();
        const bool is_deeper = expected > 0 && all[i].units > all[expected - 1].units;
        if (is_named || is_deeper) {
          EXPECT_TRUE(has(all[i])) << "holder " << i;
        }
      }
      for (const HeldPrefix& prefix : some.prefixes) {
        EXPECT_NE(std::find(all.begin(), all.end(), prefix), all.end());
      }
    }
  }
}

TEST(MatchSome, DifferentTurnsFindDifferentOnesOfEqualHolders) {
  GlobalIndex index(Small());
  const std::vector<Hash128> chain = Chain(0, 4);
  for (uint32_t worker = 1; worker <= 2000; ++worker) {
    index.Stored(IndexedWorker(worker), kDevice, std::nullopt, chain);
  }
  std::set<uint32_t> found;
  for (uint64_t turn = 0; turn < 100; ++turn) {
    const SomeHolders some = index.MatchSome(chain, 4, turn, {});
    EXPECT_EQ(some.prefixes.size(), 4u);
    EXPECT_EQ(some.prefixes, index.MatchSome(chain, 4, turn, {}).prefixes);
    for (const HeldPrefix& prefix : some.prefixes) found.insert(prefix.worker.value());
  }
  EXPECT_GT(found.size(), 80u);
}

TEST(MatchSome, IgnoresAHolderNumberThatBelongsToAnotherWorkerByNow) {
  GlobalIndex index(Small());
  const std::vector<Hash128> chain = Chain(0, 4);
  index.Stored(kA, kDevice, std::nullopt, chain);
  const NamedHolder old{.worker = kA, .holder = *index.Holder(kA, kDevice)};
  index.Cleared(kA);
  index.Sweep();
  index.Stored(kB, kDevice, std::nullopt, chain);
  ASSERT_EQ(index.Holder(kB, kDevice), old.holder) << "the number is used again";
  EXPECT_TRUE(index.MatchSome(chain, 0, 0, {&old, 1}).prefixes.empty());
}

}  // namespace
}  // namespace baton
