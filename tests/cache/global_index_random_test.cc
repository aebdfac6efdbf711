// Random events, compared with the literal model. A failing seed can be replayed.

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "tests/cache/global_index_events.h"
#include "tests/common/random_operations.h"

namespace baton {
namespace {

class GlobalIndexAgainstModel : public testing::TestWithParam<IndexLoad> {};

TEST_P(GlobalIndexAgainstModel, AgreesWithTheModelAfterEveryEvent) {
  const IndexLoad& load = GetParam();
  constexpr int kSeeds = RandomSeeds(10);
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(testing::Message() << load.name << ", seed " << seed);
    GlobalIndex index(
        {.max_blocks = 1 << 16, .key_seeds = load.eight_bits ? kEightBits : KeySeeds{}});
    LiteralPrefixModel model;
    IndexEvents events(load, seed);
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
  ReportRandomOperations(int64_t{kSeeds} * load.events);
}

// Workers join and leave while runs are split. The new runs take free chunks that a sweep has
// already passed.
TEST(GlobalIndex, AgreesWithTheModelWhileSweepsTakeManyEventsAndNumbersAreReused) {
  constexpr IndexedWorker kOther{1000};
  constexpr uint32_t kOtherChains = 2000;  // take most of the memory that a sweep visits
  constexpr uint32_t kChains = 12, kUnits = 40, kWorkers = 12, kWorkersOfAChain = 3;
  constexpr int kSeeds = RandomSeeds(20), kEvents = 20'000;
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    GlobalIndex index(Small());
    LiteralPrefixModel model;
    const auto other = [](uint64_t i) { return Chain((i + 1) << 32, 1 + i % kUnits); };
    std::vector<bool> stored(kOtherChains, true);
    for (uint32_t i = 0; i < kOtherChains; ++i) index.Stored(kOther, kDevice, {}, other(i));
    HolderId highest = 0;
    uint32_t given = 0;
    for (int i = 0; i < kEvents; ++i) {
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
    EXPECT_GT(given, 4u * highest) << "holder numbers must be reused";
    EXPECT_EQ(index.refused(), 0u);
    index.Cleared(kOther);
    EXPECT_EQ(index.memberships(), model.memberships());
  }
  ReportRandomOperations(kSeeds * kEvents);
}

INSTANTIATE_TEST_SUITE_P(
    , GlobalIndexAgainstModel,
    testing::Values(IndexLoad{"short", false, 6, 6, 3, 8'000, true},
                    IndexLoad{"long", false, 6, 400, 3, 1'000, true},
                    IndexLoad{"crowd", false, 120, 40, 2, 3'000, true},
                    IndexLoad{"unchained", false, 6, 30, 0, 4'000, false},
                    IndexLoad{"eight_bits", true, 6, 20, 3, 2'000, true},
                    IndexLoad{"eight_bits_unchained", true, 12, 30, 0, 2'000, false}),
    [](const testing::TestParamInfo<IndexLoad>& info) { return info.param.name; });

}  // namespace
}  // namespace baton
