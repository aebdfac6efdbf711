#include "cache/index/prefix_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr IndexedWorker kA{1}, kB{2};

std::vector<Hash128> Chain(std::vector<CacheUnit> per_unit) {
  std::vector<CacheUnit> units;
  for (const CacheUnit unit : per_unit) units.insert(units.end(), kUnitsPerHash, unit);
  return ChainedHashes(CacheNamespace(1), units);
}

TEST(PrefixIndex, SaysForEveryWorkerHowManyLeadingUnitsItHolds) {
  PrefixIndex index(100);
  index.Insert(kA, Chain({1, 2, 3}));
  index.Insert(kB, Chain({1, 2, 4, 5}));
  EXPECT_THAT(index.Match(Chain({1, 2, 4, 6})),
              ElementsAre(WorkerPrefix{kB, 3}, WorkerPrefix{kA, 2}));
  EXPECT_THAT(index.Match(Chain({2, 1})), IsEmpty());
  EXPECT_THAT(index.Match({}), IsEmpty());
}

TEST(PrefixIndex, AGapEndsAWorkersPrefix) {
  PrefixIndex index(100);
  const auto chain = Chain({1, 2, 3});
  index.Insert(kB, chain);
  index.Insert(kA, std::span(chain).first(1));
  index.Insert(kA, std::span(chain).subspan(2));
  EXPECT_THAT(index.Match(chain), ElementsAre(WorkerPrefix{kB, 3}, WorkerPrefix{kA, 1}));
}

TEST(PrefixIndex, ARemovedWorkerMatchesNothingAndItsEntriesGoWhenLookedAt) {
  PrefixIndex index(100);
  index.Insert(kA, Chain({1, 2, 3}));
  index.Insert(kB, Chain({1}));
  index.RemoveWorker(kA);
  EXPECT_EQ(index.size(), 3u);
  EXPECT_THAT(index.Match(Chain({1, 2, 3})), ElementsAre(WorkerPrefix{kB, 1}));
  EXPECT_EQ(index.size(), 2u);
  index.RemoveWorker(kB);
  EXPECT_THAT(index.Match(Chain({1, 2, 3})), IsEmpty());
  EXPECT_EQ(index.size(), 1u);
}

TEST(PrefixIndex, NothingIsRememberedOfAWorkerThatWasRemoved) {
  PrefixIndex index(100);
  index.RemoveWorker(kA);
  index.Insert(kA, Chain({1, 2}));
  EXPECT_EQ(index.size(), 0u);
}

TEST(PrefixIndex, WhatRemovedWorkersHeldIsTheFirstToGo) {
  PrefixIndex index(4);
  index.Insert(kA, Chain({1, 2}));
  index.RemoveWorker(kA);
  index.Insert(kB, Chain({5, 6, 7, 8}));
  EXPECT_EQ(index.size(), 4u);
  EXPECT_THAT(index.Match(Chain({5, 6, 7, 8})), ElementsAre(WorkerPrefix{kB, 4}));
}

TEST(PrefixIndex, ForgetsTheLeastRecentlyUsedAndOfAChainItsEndFirst) {
  PrefixIndex index(4);
  index.Insert(kA, Chain({1, 2}));
  index.Insert(kA, Chain({7, 8}));
  index.Match(Chain({1, 2}));
  index.Insert(kA, Chain({9}));
  EXPECT_THAT(index.Match(Chain({7, 8})), ElementsAre(WorkerPrefix{kA, 1}));
  EXPECT_THAT(index.Match(Chain({1, 2})), ElementsAre(WorkerPrefix{kA, 2}));
  EXPECT_EQ(index.size(), 4u);
}

TEST(PrefixIndex, AChainLongerThanTheIndexKeepsItsBeginning) {
  PrefixIndex index(3);
  const auto chain = Chain({1, 2, 3, 4, 5});
  index.Insert(kA, chain);
  EXPECT_THAT(index.Match(chain), ElementsAre(WorkerPrefix{kA, 3}));
}

// The literal model: for each hash a set of workers, and a list of hashes by use. Removed workers
// are dropped from a hash when it is looked at.
class IndexModel {
 public:
  explicit IndexModel(size_t capacity) : capacity_(capacity) {}
  void Insert(IndexedWorker worker, std::span<const Hash128> hashes) {
    for (size_t i = std::min(hashes.size(), capacity_); i-- > 0;) {
      Drop(hashes[i]);
      workers_[hashes[i]].insert(worker);
      Use(hashes[i]);
      if (workers_.size() > capacity_) {
        workers_.erase(by_use_.front());
        by_use_.erase(by_use_.begin());
      }
    }
  }
  std::map<IndexedWorker, int32_t> Match(std::span<const Hash128> hashes,
                                         std::span<const IndexedWorker> alive) {
    std::map<IndexedWorker, int32_t> held;
    int32_t deepest = 0;
    for (const IndexedWorker worker : alive) {
      int32_t units = 0;
      while (units < static_cast<int32_t>(hashes.size()) && workers_.contains(hashes[units]) &&
             workers_[hashes[units]].contains(worker)) {
        ++units;
      }
      if (units > 0) held[worker] = units;
      deepest = std::max(deepest, units);
    }
    for (int32_t i = deepest; i-- > 0;) Use(hashes[i]);
    if (deepest < static_cast<int32_t>(hashes.size())) Drop(hashes[deepest]);
    return held;
  }
  void RemoveWorker(IndexedWorker worker) { removed_.insert(worker); }
  size_t size() const { return workers_.size(); }

 private:
  void Drop(const Hash128& hash) {
    const auto found = workers_.find(hash);
    if (found == workers_.end()) return;
    std::erase_if(found->second,
                  [this](IndexedWorker worker) { return removed_.contains(worker); });
    if (!found->second.empty()) return;
    std::erase(by_use_, hash);
    workers_.erase(found);
  }
  void Use(const Hash128& hash) {
    std::erase(by_use_, hash);
    by_use_.push_back(hash);
  }
  size_t capacity_;
  std::map<Hash128, std::set<IndexedWorker>> workers_;
  std::vector<Hash128> by_use_;  // latest last
  std::set<IndexedWorker> removed_;
};

TEST(PrefixIndex, AgreesWithALiteralModelOverRandomEvents) {
  for (uint32_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    const size_t capacity = 1 + random() % 60;
    PrefixIndex index(capacity);
    IndexModel model(capacity);
    uint32_t next_number = 8;
    std::vector<IndexedWorker> alive;
    for (uint32_t number = 0; number < next_number; ++number) alive.emplace_back(number);
    for (int step = 0; step < 5'000; ++step) {
      std::vector<CacheUnit> units(random() % 8);
      for (CacheUnit& unit : units) unit = random() % 3;
      const auto chain = Chain(units);
      IndexedWorker& worker = alive[random() % alive.size()];
      const uint32_t kind = random() % 40;
      if (kind == 0) {
        index.RemoveWorker(worker);
        model.RemoveWorker(worker);
        worker = IndexedWorker(next_number++);
      } else if (kind < 20) {
        index.Insert(worker, chain);
        model.Insert(worker, chain);
      } else {
        const auto expected = model.Match(chain, alive);
        const auto found = index.Match(chain);
        ASSERT_EQ(found.size(), expected.size());
        for (const WorkerPrefix& prefix : found) {
          ASSERT_EQ(prefix.units, expected.at(prefix.worker));
        }
      }
      ASSERT_EQ(index.size(), model.size());
    }
  }
}

}  // namespace
}  // namespace baton
