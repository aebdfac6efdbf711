#include "engine/prefix_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "common/clock.h"
#include "model/shared_prefixes.h"

namespace baton {
namespace {

using ::testing::ElementsAre;

class PrefixOrderTest : public ::testing::Test {
 protected:
  static KvCacheOptions Options() {
    KvCacheOptions options;
    options.num_blocks = 600;
    options.block_size = 128;
    return options;
  }
  // Begins a sequence whose prompt has `shared` tokens of a prefix and `own` tokens of its own.
  // Adds its row to the plan.
  void Add(int id, TokenId prefix, int32_t shared, int32_t own) {
    std::vector<TokenId> tokens(shared, prefix);
    tokens.resize(tokens.size() + own, 1'000 + id);
    const auto units = UnitsFromTokens(tokens);
    const auto count = static_cast<int32_t>(tokens.size());
    const SequenceId sequence(id);
    const auto matched = cache_.Begin(sequence, CacheNamespace(), units, count + 1);
    ASSERT_TRUE(matched.ok()) << matched.status();
    ASSERT_TRUE(cache_.Reserve(sequence, count + 1).ok());
    cache_.Commit(sequence, std::span(units).subspan(*matched));
    cache_.InsertCommitted(sequence);
    plan_.chunks.push_back({.id = sequence, .begin = count, .count = 1});
  }
  std::vector<int> Order() {
    PutSharedPrefixesTogether(cache_, plan_);
    std::vector<int> ids;
    for (const ScheduledChunk& chunk : plan_.chunks)
      ids.push_back(static_cast<int>(chunk.id.value()));
    return ids;
  }

  ManualClock clock_;
  KvCacheManager cache_{Options(), &clock_};
  SchedulerOutput plan_;
};

TEST_F(PrefixOrderTest, RowsMoveBehindTheFirstRowThatSharesMostWithThem) {
  Add(1, 7, 2 * kSharedSlots, 10);
  Add(2, 8, kSharedSlots, 300);
  Add(3, 7, kSharedSlots, 2 * kSharedSlots);
  Add(4, 9, 100, 5);
  Add(5, 7, 2 * kSharedSlots, 20);
  Add(6, 8, kSharedSlots, 1);
  Add(7, 9, 100, 8);
  EXPECT_THAT(Order(), ElementsAre(1, 5, 3, 2, 6, 4, 7));
  EXPECT_THAT(Order(), ElementsAre(1, 5, 3, 2, 6, 4, 7)) << "the order is stable";
}

TEST_F(PrefixOrderTest, WithoutACommonGroupOfSegmentsRowsKeepTheirOrder) {
  Add(1, 7, kSharedSlots - 128, 300);
  Add(2, 8, kSharedSlots - 128, 300);
  Add(3, 7, kSharedSlots - 128, 300);
  EXPECT_THAT(Order(), ElementsAre(1, 2, 3));
}

TEST_F(PrefixOrderTest, OnlyTheRowsOfOneTokenAtTheFrontMove) {
  Add(1, 7, kSharedSlots, 3);
  Add(2, 8, kSharedSlots, 3);
  Add(3, 7, kSharedSlots, 9);
  Add(4, 8, kSharedSlots, 3);
  plan_.chunks[2].begin -= 4;
  plan_.chunks[2].count = 5;
  EXPECT_THAT(Order(), ElementsAre(1, 2, 3, 4));
}

}  // namespace
}  // namespace baton
