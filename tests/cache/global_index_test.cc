#include "cache/index/global_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>

#include "tests/cache/literal_prefix_model.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr IndexedWorker kA{1}, kB{2}, kC{3};
constexpr CacheTier kDevice = CacheTier::kDevice, kHost = CacheTier::kHost;

uint64_t Mix(uint64_t value) {
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9;
  value = (value ^ value >> 27) * 0x94d049bb133111eb;
  return value ^ value >> 31;
}

// The chained hashes of a sequence of units named by numbers.
std::vector<Hash128> Chain(const std::vector<uint64_t>& units) {
  std::vector<Hash128> hashes;
  Hash128 hash{.low = 0x243f6a8885a308d3, .high = 0x13198a2e03707344};
  for (const uint64_t unit : units) {
    hash.low = Mix(hash.low + Mix(unit + 1));
    hash.high = Mix(hash.high ^ hash.low);
    hashes.push_back(hash);
  }
  return hashes;
}

std::vector<Hash128> Chain(uint64_t first, uint64_t count) {
  std::vector<uint64_t> units(count);
  for (uint64_t i = 0; i < count; ++i) units[i] = first + i;
  return Chain(units);
}

constexpr size_t kLeastBytes = 8192;  // an empty index's table

GlobalIndexOptions Small() {
  return {.max_blocks = 1 << 16, .expected_blocks = 0, .multipliers = {}};
}

TEST(GlobalIndex, SaysForEveryWorkerAndTierHowManyLeadingUnitsItHolds) {
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

TEST(GlobalIndex, FindsBlocksBehindAGapThatNobodyHolds) {
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

TEST(GlobalIndex, AWorkerThatIsClearedIsInNoAnswerAndLeavesNothing) {
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
  // Back under the same number, it begins with nothing.
  index.Stored(kA, kDevice, {}, Chain({7}));
  EXPECT_THAT(index.MatchWorkers(Chain({7, 8})), ElementsAre(HeldPrefix{kA, kDevice, 1}));
}

TEST(GlobalIndex, NumbersOfForgottenWorkersAreGivenAgain) {
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
  index.Removed(kMany, kDevice, Chain(0, 10));  // a free chunk at the beginning of memory
  const auto number = index.Holder(kB, kDevice);
  index.Cleared(kB);                                            // a sweep begins, and passes it
  index.Removed(kA, kDevice, std::span(chain).subspan(1, 19));  // the run that B was in is cut up
  for (uint64_t i = 1; i <= 40; ++i) index.Removed(kC, kDevice, {});  // the sweep ends
  index.Stored(kC, kDevice, {}, begin);
  ASSERT_EQ(index.Holder(kC, kDevice), number);
  EXPECT_THAT(index.MatchWorkers(chain),
              ElementsAre(HeldPrefix{kC, kDevice, 20}, HeldPrefix{kA, kDevice, 1}));
  const size_t memberships = index.memberships();
  index.Removed(kC, kDevice, end);
  EXPECT_EQ(index.memberships(), memberships);
}

TEST(GlobalIndex, RefusesWhatGoesBeyondItsCapacityAndNeverSaysTooMuch) {
  GlobalIndex index({.max_blocks = 10, .expected_blocks = 10, .multipliers = {}});
  index.Stored(kA, kDevice, {}, Chain(0, 8));
  index.Stored(kB, kDevice, {}, Chain(100, 8));
  EXPECT_EQ(index.refused(), 6u);
  EXPECT_EQ(index.blocks(), 10u);
  EXPECT_THAT(index.MatchWorkers(Chain(100, 8)), ElementsAre(HeldPrefix{kB, kDevice, 2}));
  index.Stored(kC, kDevice, {}, Chain(0, 8));  // another holder of known blocks needs no room
  EXPECT_THAT(index.MatchWorkers(Chain(0, 8)),
              ElementsAre(HeldPrefix{kA, kDevice, 8}, HeldPrefix{kC, kDevice, 8}));
  index.Removed(kA, kDevice, Chain(0, 8));
  index.Removed(kC, kDevice, Chain(0, 8));
  index.Stored(kB, kDevice, {}, Chain(100, 8));
  EXPECT_THAT(index.MatchWorkers(Chain(100, 8)), ElementsAre(HeldPrefix{kB, kDevice, 8}));
}

TEST(GlobalIndex, AChainMuchLongerThanARunIsOneAnswer) {
  GlobalIndex index(Small());
  const auto chain = Chain(0, 5000);
  index.Stored(kA, kDevice, {}, chain);
  index.Stored(kB, kDevice, {}, std::span(chain).first(4321));
  EXPECT_THAT(index.MatchWorkers(chain),
              ElementsAre(HeldPrefix{kA, kDevice, 5000}, HeldPrefix{kB, kDevice, 4321}));
}

TEST(GlobalIndex, BlocksStoredOneByOneShareRuns) {
  GlobalIndex index(Small());
  const auto chain = Chain(0, 2000);
  for (size_t i = 0; i < chain.size(); ++i) {
    index.Stored(kA, kDevice, i > 0 ? std::optional(chain[i - 1]) : std::nullopt,
                 std::span(chain).subspan(i, 1));
  }
  EXPECT_THAT(index.MatchWorkers(chain), ElementsAre(HeldPrefix{kA, kDevice, 2000}));
  EXPECT_LT(index.bytes(), 40 * chain.size());
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

// Keys of the lowest 8 bits: every look-up meets other blocks' entries, and only the whole hash
// tells them apart.
constexpr KeyMultipliers kEightBits{.first = (uint64_t{1} << 56) + 1, .second = 0};

struct Load {
  const char* name;
  bool eight_bits;  // of every hash make a key
  uint32_t workers;
  uint32_t longest;   // units of a chain
  uint32_t branches;  // names a unit can have
  int events;
  bool chained;  // else hashes come in any order, as a broken worker would send them
};

class Events {
 public:
  Events(const Load& load, uint32_t seed) : load_(load), random_(seed) {
    if (load.chained) return;
    for (int i = 0; i < 200; ++i) any_.push_back(Narrowed(Chain({random_()}))[0]);
  }

  std::vector<Hash128> Sequence() {
    std::vector<Hash128> hashes;
    if (!load_.chained) {
      hashes.resize(1 + random_() % load_.longest);
      for (Hash128& hash : hashes) hash = any_[random_() % any_.size()];
      return hashes;
    }
    // Long common beginnings: a unit differs from 0 once in a while.
    std::vector<uint64_t> units(1 + random_() % load_.longest);
    for (uint64_t& unit : units) unit = random_() % 8 == 0 ? random_() % load_.branches : 0;
    return Narrowed(Chain(units));
  }

  void Next(GlobalIndex& index, LiteralPrefixModel& model) {
    const IndexedWorker worker(random_() % load_.workers);
    const auto tier = static_cast<CacheTier>(random_() % 8 == 0);
    auto hashes = Sequence();
    const uint32_t kind = random_() % 100;
    if (kind < 1) {
      index.Cleared(worker);
      model.Cleared(worker);
    } else if (kind < 45) {
      const size_t from = random_() % 4 == 0 ? random_() % hashes.size() : 0;
      const std::span<const Hash128> part = std::span(hashes).subspan(from);
      index.Stored(worker, tier, from > 0 ? std::optional(hashes[from - 1]) : std::nullopt, part);
      model.Stored(worker, tier, part);
    } else {
      switch (random_() % 4) {
        case 0:  // the end, last first
          hashes.erase(hashes.begin(), hashes.begin() + random_() % hashes.size());
          std::reverse(hashes.begin(), hashes.end());
          break;
        case 1:  // the beginning
          hashes.resize(1 + random_() % hashes.size());
          break;
        case 2:  // from the middle
          std::shuffle(hashes.begin(), hashes.end(), random_);
          hashes.resize(1 + random_() % std::min<size_t>(3, hashes.size()));
          break;
        default:  // everything
          break;
      }
      index.Removed(worker, tier, hashes);
      model.Removed(worker, tier, hashes);
    }
  }

 private:
  std::vector<Hash128> Narrowed(std::vector<Hash128> hashes) const {
    if (load_.eight_bits) {
      for (Hash128& hash : hashes) hash.low &= 255;
    }
    return hashes;
  }

  const Load load_;
  std::mt19937 random_;
  std::vector<Hash128> any_;
};

class GlobalIndexAgainstModel : public testing::TestWithParam<Load> {};

TEST_P(GlobalIndexAgainstModel, GivesTheLiteralAnswerAfterEveryEvent) {
  const Load& load = GetParam();
  for (uint32_t seed = 1; seed <= 3; ++seed) {
    SCOPED_TRACE(testing::Message() << load.name << ", seed " << seed);
    GlobalIndex index(
        {.max_blocks = 1 << 16, .multipliers = load.eight_bits ? kEightBits : KeyMultipliers{}});
    LiteralPrefixModel model;
    Events events(load, seed);
    for (int i = 0; i < load.events; ++i) {
      events.Next(index, model);
      const auto query = events.Sequence();
      ASSERT_EQ(index.MatchWorkers(query), model.Match(query)) << "event " << i;
      ASSERT_EQ(index.memberships(), model.memberships()) << "event " << i;
      if (i % 500 == 499) {
        index.Sweep();
        ASSERT_GE(index.blocks(), model.blocks());
        for (const auto& [owner, set] : model.held()) {
          for (const Hash128& hash : set) {
            ASSERT_EQ(index.MatchWorkers({{hash}}), model.Match({{hash}}));
          }
        }
      }
    }
    EXPECT_EQ(index.refused(), 0u);
    for (uint32_t worker = 0; worker < load.workers; ++worker) index.Cleared(IndexedWorker(worker));
    index.Sweep();
    EXPECT_EQ(index.memberships(), 0u);
    EXPECT_EQ(index.blocks(), 0u);
    EXPECT_LE(index.bytes() - index.free_bytes(), kLeastBytes);
  }
}

// Workers come and go while runs are cut up into chunks that were freed where a sweep has been
// already.
TEST(GlobalIndex, GivesTheLiteralAnswerWhileSweepsTakeManyEventsAndNumbersComeBack) {
  constexpr IndexedWorker kOther{1000};
  constexpr uint32_t kOtherChains = 2000;  // most of the memory that is swept
  constexpr uint32_t kChains = 12, kUnits = 40, kWorkers = 12, kWorkersOfAChain = 3;
  for (uint32_t seed = 1; seed <= 15; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    GlobalIndex index(Small());
    LiteralPrefixModel model;
    const auto other = [](uint64_t i) { return Chain((i + 1) << 32, 1 + i % kUnits); };
    std::vector<bool> stored(kOtherChains, true);
    for (uint32_t i = 0; i < kOtherChains; ++i) index.Stored(kOther, kDevice, {}, other(i));
    HolderId highest = 0;
    uint32_t given = 0;
    for (int i = 0; i < 20'000; ++i) {
      const uint64_t name = random() % kChains;
      const auto chain = Chain(name * kUnits, kUnits);
      const IndexedWorker worker((name + random() % kWorkersOfAChain) % kWorkers);
      const uint32_t from = random() % kUnits;
      const auto part = std::span(chain).subspan(from, 1 + random() % (kUnits - from));
      const uint32_t kind = random() % 100;
      if (kind < 1) {
        index.Cleared(worker);
        model.Cleared(worker);
      } else if (kind < 25) {
        given += !index.Holder(worker, kDevice);
        index.Stored(worker, kDevice, {}, part);
        model.Stored(worker, kDevice, part);
        highest = std::max(highest, *index.Holder(worker, kDevice));
      } else if (kind < 70) {
        index.Removed(worker, kDevice, part);
        model.Removed(worker, kDevice, part);
      } else {
        const uint32_t j = random() % kOtherChains;
        stored[j] = !stored[j];
        if (stored[j]) {
          index.Stored(kOther, kDevice, {}, other(j));
        } else {
          index.Removed(kOther, kDevice, other(j));
        }
      }
      for (const uint32_t at : {0u, from}) {
        const auto query = std::span(chain).subspan(at);
        ASSERT_EQ(index.MatchWorkers(query), model.Match(query)) << "event " << i;
      }
    }
    EXPECT_GT(given, 4u * highest) << "numbers were given again";
    EXPECT_EQ(index.refused(), 0u);
    index.Cleared(kOther);
    EXPECT_EQ(index.memberships(), model.memberships());
  }
}

// What a reader saw, and after which event.
struct Seen {
  uint64_t events;
  size_t query;
  std::vector<HeldPrefix> answer;
};

TEST(GlobalIndex, ReadersSeeTheLiteralAnswerOfAMomentWhileItIsWritten) {
  constexpr uint32_t kSeed = 5;
  constexpr int kEvents = 20'000;
  const Load load{"", false, 30, 60, 2, kEvents, true};
  std::vector<std::vector<Hash128>> queries(64);
  Events query_source(load, kSeed + 1);
  for (auto& query : queries) query = query_source.Sequence();

  GlobalIndex index({.max_blocks = 1 << 16, .expected_blocks = 0, .multipliers = {}});
  std::atomic<bool> done{false};
  std::vector<std::vector<Seen>> seen(2);
  std::vector<std::thread> readers;
  for (size_t r = 0; r < seen.size(); ++r) {
    readers.emplace_back([&, r] {
      PrefixMatch match;
      uint64_t last = UINT64_MAX;
      for (size_t i = r; !done; ++i) {
        const size_t query = i * 7 % queries.size();
        auto answer = index.MatchWorkers(queries[query], match);
        if (!match.of_one_moment() || match.events() == last) continue;
        last = match.events();
        seen[r].push_back({.events = last, .query = query, .answer = std::move(answer)});
      }
    });
  }
  {
    Events events(load, kSeed);
    LiteralPrefixModel ignored;
    for (int i = 0; i < kEvents; ++i) {
      events.Next(index, ignored);
      if (i % 64 == 0) std::this_thread::yield();
    }
  }
  done = true;
  for (std::thread& reader : readers) reader.join();

  // The same events again, the model being asked where the readers asked.
  GlobalIndex again({.max_blocks = 1 << 16, .expected_blocks = 0, .multipliers = {}});
  LiteralPrefixModel model;
  Events events(load, kSeed);
  std::vector<size_t> next(seen.size());
  for (uint64_t i = 0; i <= kEvents; ++i) {
    for (size_t r = 0; r < seen.size(); ++r) {
      for (; next[r] < seen[r].size() && seen[r][next[r]].events == i; ++next[r]) {
        const Seen& one = seen[r][next[r]];
        ASSERT_EQ(one.answer, model.Match(queries[one.query])) << "after event " << i;
      }
    }
    if (i < kEvents) events.Next(again, model);
  }
  for (size_t r = 0; r < seen.size(); ++r) EXPECT_EQ(next[r], seen[r].size());
}

TEST(GlobalIndex, ReadersGoOnWhileTheTableGrowsAndShrinks) {
  GlobalIndex index({.max_blocks = 1 << 16, .expected_blocks = 0, .multipliers = {}});
  const auto kept = Chain(0, 300);
  index.Stored(kA, kDevice, {}, kept);
  std::atomic<bool> done{false};
  std::thread reader([&] {
    PrefixMatch match;
    while (!done) {
      const auto answer = index.MatchWorkers(kept, match);
      ASSERT_THAT(answer, ElementsAre(HeldPrefix{kA, kDevice, 300}));
    }
  });
  std::vector<std::vector<Hash128>> chains;
  for (uint64_t i = 1; i <= 200; ++i) chains.push_back(Chain(i << 32, 40));
  for (int round = 0; round < 5; ++round) {
    for (const auto& chain : chains) index.Stored(kB, kDevice, {}, chain);
    for (const auto& chain : chains) index.Removed(kB, kDevice, chain);
  }
  done = true;
  reader.join();
  EXPECT_EQ(index.blocks(), 300u);
}

INSTANTIATE_TEST_SUITE_P(, GlobalIndexAgainstModel,
                         testing::Values(Load{"short", false, 6, 6, 3, 8'000, true},
                                         Load{"long", false, 6, 400, 3, 1'000, true},
                                         Load{"crowd", false, 120, 40, 2, 3'000, true},
                                         Load{"unchained", false, 6, 30, 0, 4'000, false},
                                         Load{"eight_bits", true, 6, 20, 3, 2'000, true},
                                         Load{"eight_bits_unchained", true, 12, 30, 0, 2'000,
                                              false}),
                         [](const testing::TestParamInfo<Load>& info) { return info.param.name; });

}  // namespace
}  // namespace baton
