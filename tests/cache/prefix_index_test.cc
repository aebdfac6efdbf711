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

TEST(PrefixIndex, AForgottenWorkerLeavesNothingBehind) {
  PrefixIndex index(100);
  index.Insert(kA, Chain({1, 2, 3}));
  index.Insert(kB, Chain({1}));
  index.RemoveWorker(kA);
  EXPECT_THAT(index.Match(Chain({1, 2, 3})), ElementsAre(WorkerPrefix{kB, 1}));
  EXPECT_EQ(index.size(), 1u);
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

// The literal model: for each hash a set of workers, and a list of hashes by use.
class IndexModel {
 public:
  explicit IndexModel(size_t capacity) : capacity_(capacity) {}
  void Insert(IndexedWorker worker, std::span<const Hash128> hashes) {
    for (size_t i = std::min(hashes.size(), capacity_); i-- > 0;) {
      workers_[hashes[i]].insert(worker);
      Use(hashes[i]);
      if (workers_.size() > capacity_) {
        workers_.erase(by_use_.front());
        by_use_.erase(by_use_.begin());
      }
    }
  }
  std::map<IndexedWorker, int32_t> Match(std::span<const Hash128> hashes) {
    std::map<IndexedWorker, int32_t> held;
    int32_t deepest = 0;
    for (uint32_t w = 0; w < 8; ++w) {
      int32_t units = 0;
      while (units < static_cast<int32_t>(hashes.size()) && workers_.contains(hashes[units]) &&
             workers_[hashes[units]].contains(IndexedWorker(w))) {
        ++units;
      }
      if (units > 0) held[IndexedWorker(w)] = units;
      deepest = std::max(deepest, units);
    }
    for (int32_t i = deepest; i-- > 0;) Use(hashes[i]);
    return held;
  }
  void RemoveWorker(IndexedWorker worker) {
    for (auto it = workers_.begin(); it != workers_.end();) {
      const auto current = it++;
      current->second.erase(worker);
      if (!current->second.empty()) continue;
      std::erase(by_use_, current->first);
      workers_.erase(current);
    }
  }
  size_t size() const { return workers_.size(); }

 private:
  void Use(const Hash128& hash) {
    std::erase(by_use_, hash);
    by_use_.push_back(hash);
  }
  size_t capacity_;
  std::map<Hash128, std::set<IndexedWorker>> workers_;
  std::vector<Hash128> by_use_;  // latest last
};

TEST(PrefixIndex, AgreesWithALiteralModelOverRandomEvents) {
  for (uint32_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    const size_t capacity = 1 + random() % 60;
    PrefixIndex index(capacity);
    IndexModel model(capacity);
    for (int step = 0; step < 5'000; ++step) {
      std::vector<CacheUnit> units(random() % 8);
      for (CacheUnit& unit : units) unit = random() % 3;
      const auto chain = Chain(units);
      const IndexedWorker worker(random() % 8);
      const uint32_t kind = random() % 40;
      if (kind == 0) {
        index.RemoveWorker(worker);
        model.RemoveWorker(worker);
      } else if (kind < 20) {
        index.Insert(worker, chain);
        model.Insert(worker, chain);
      } else {
        const auto expected = model.Match(chain);
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
