#include "routing/chunk_holdings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr WorkerNumber kA{1}, kB{2}, kC{3};

// Part 0 is the system part. Chunk 1 has two pieces; chunk 2 is chunk 0 again; chunk 3 begins as
// chunk 1.
ChunkHoldings Holdings() {
  return ChunkHoldings({50, 10, 256, 30, 40}, {{1}, {2, 3}, {1}, {2, 4}});
}

TEST(ChunkHoldings, AChunkCanBePulledFromAWorkerThatHasAllItsPieces) {
  ChunkHoldings holdings = Holdings();
  EXPECT_EQ(holdings.TokensToPull(kA, kB), 0);
  holdings.Hold(kA, 0);
  holdings.Hold(kA, 2);
  EXPECT_EQ(holdings.TokensToPull(kA, kB), 0) << "a piece is no chunk, nor is the system part";
  holdings.Hold(kA, 3);
  EXPECT_EQ(holdings.TokensToPull(kA, kB), 286);
  EXPECT_THAT(holdings.ChunksToPull(kA, kB), ElementsAre(1));
  holdings.Hold(kB, 2);
  EXPECT_EQ(holdings.TokensToPull(kA, kB), 30) << "the receiver has a piece";
  holdings.Hold(kB, 3);
  EXPECT_EQ(holdings.TokensToPull(kA, kB), 0);
  EXPECT_THAT(holdings.ChunksToPull(kA, kB), IsEmpty());
}

TEST(ChunkHoldings, EqualChunksAndSharedPiecesCountOnce) {
  ChunkHoldings holdings = Holdings();
  for (const int32_t part : {1, 2, 3, 4}) holdings.Hold(kC, part);
  EXPECT_EQ(holdings.TokensOf(kC), 10 + 256 + 30 + 40);
  EXPECT_EQ(holdings.TokensToPull(kC, kA), 10 + 256 + 30 + 40);
  EXPECT_THAT(holdings.ChunksToPull(kC, kA), ElementsAre(0, 1, 3));
  EXPECT_EQ(holdings.TokensToPull(kC, kC), 0);
}

// A chunk that sleeps in host memory is not sent, and need not be received.
TEST(ChunkHoldings, ASleepingChunkIsNeitherSentNorPulled) {
  ChunkHoldings holdings = Holdings();
  holdings.Hold(kA, 1, /*sends=*/false);
  EXPECT_EQ(holdings.TokensOf(kA), 0);
  EXPECT_EQ(holdings.TokensToPull(kA, kB), 0);
  holdings.Hold(kB, 1);
  EXPECT_EQ(holdings.TokensToPull(kB, kA), 0) << "it wakes there";
  EXPECT_EQ(holdings.TokensToPull(kB, kC), 10);
  holdings.Hold(kA, 1);
  EXPECT_EQ(holdings.TokensToPull(kA, kC), 10) << "in both tiers";
}

}  // namespace
}  // namespace baton
