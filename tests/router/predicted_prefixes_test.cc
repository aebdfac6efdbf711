#include "router/predicted_prefixes.h"

#include <gtest/gtest.h>

#include <vector>

namespace baton {
namespace {

constexpr IndexedWorker kA{1}, kB{2};
using Units = absl::flat_hash_map<IndexedWorker, int32_t>;

std::vector<Hash128> Chain(uint64_t name, size_t length) {
  std::vector<Hash128> chain;
  for (uint64_t i = 0; i < length; ++i) chain.push_back({name, i});
  return chain;
}

Units Extended(PredictedPrefixes& predicted, const std::vector<Hash128>& hashes, int64_t now_us,
               Units units = {}) {
  predicted.Extend(hashes, now_us, units);
  return units;
}

TEST(PredictedPrefixes, ContinuesWhereTheIndexEnds) {
  PredictedPrefixes predicted(100, 1000);
  const std::vector<Hash128> chain = Chain(1, 6);
  predicted.Add(kA, std::span(chain).subspan(2, 3), 0);
  EXPECT_EQ(Extended(predicted, chain, 0, {{kA, 2}}), (Units{{kA, 5}}));
  EXPECT_EQ(Extended(predicted, chain, 0, {{kA, 3}}), (Units{{kA, 5}}));
  EXPECT_EQ(Extended(predicted, chain, 0, {{kA, 1}}), (Units{{kA, 1}})) << "a gap ends a prefix";
  EXPECT_EQ(Extended(predicted, chain, 0, {{kB, 2}}), (Units{{kB, 2}}));
  EXPECT_EQ(Extended(predicted, chain, 0), Units());
  EXPECT_EQ(Extended(predicted, Chain(2, 6), 0), Units());
}

TEST(PredictedPrefixes, FindsWorkersThatTheIndexDoesNotKnow) {
  PredictedPrefixes predicted(100, 1000);
  const std::vector<Hash128> chain = Chain(1, 4);
  predicted.Add(kA, chain, 0);
  predicted.Add(kB, std::span(chain).first(2), 0);
  EXPECT_EQ(Extended(predicted, chain, 0), (Units{{kA, 4}, {kB, 2}}));
}

TEST(PredictedPrefixes, APredictionExpiresUnlessItIsRenewed) {
  PredictedPrefixes predicted(100, 1000);
  const std::vector<Hash128> chain = Chain(1, 4);
  predicted.Add(kA, chain, 0);
  predicted.Add(kA, std::span(chain).first(2), 600);
  EXPECT_EQ(Extended(predicted, chain, 999), (Units{{kA, 4}}));
  EXPECT_EQ(Extended(predicted, chain, 1000), (Units{{kA, 2}}));
  EXPECT_EQ(Extended(predicted, chain, 1600), Units());
  EXPECT_EQ(predicted.size(), 0u);
}

TEST(PredictedPrefixes, TheOldestPredictionsAreDroppedAtTheLimit) {
  PredictedPrefixes predicted(8, 1000);
  predicted.Add(kA, Chain(1, 6), 0);
  predicted.Add(kA, Chain(2, 6), 1);
  EXPECT_LE(predicted.size(), 8u);
  EXPECT_EQ(Extended(predicted, Chain(1, 6), 1), Units());
  EXPECT_EQ(Extended(predicted, Chain(2, 6), 1), (Units{{kA, 6}}));
}

// In a large fleet, only some workers are looked at.
TEST(PredictedPrefixes, FindsTheWorkersWhosePredictionsBeginWhereTheIndexEnds) {
  PredictedPrefixes predicted(100, 1000);
  const std::vector<Hash128> chain = Chain(1, 8);
  predicted.Add(kA, std::span(chain).subspan(2, 4), 0);
  predicted.Add(kB, std::span(chain).first(3), 0);
  const auto some = [&](const std::vector<int32_t>& begins, size_t most, Units units = {}) {
    predicted.ExtendSome(chain, 0, begins, most, units);
    return units;
  };
  EXPECT_EQ(some({0, 2}, 8), (Units{{kA, 6}, {kB, 3}}));
  EXPECT_EQ(some({0}, 8), (Units{{kB, 3}}));
  EXPECT_EQ(some({2, 5, 8, -1}, 8), (Units{{kA, 6}, {kB, 3}}));
  EXPECT_EQ(some({}, 8, {{kA, 2}}), (Units{{kA, 6}}));
  EXPECT_EQ(some({2}, 8, {{kA, 7}}), (Units{{kA, 7}, {kB, 3}}));
  EXPECT_EQ(some({2}, 1).size(), 1u);
}

}  // namespace
}  // namespace baton
