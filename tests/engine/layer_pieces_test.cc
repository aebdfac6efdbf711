#include "engine/layer_pieces.h"

#include <gtest/gtest.h>

#include <vector>

namespace baton {
namespace {

std::vector<int32_t> Ends(const LayerPieces& pieces, int32_t layers, int32_t count) {
  std::vector<int32_t> ends;
  for (int32_t layer = 1; layer <= layers; ++layer) {
    if (pieces.EndsPiece(layer, count)) ends.push_back(layer);
  }
  return ends;
}

TEST(LayerPieces, NumberIsAsRequestedAndAtMostOnePerLayer) {
  const LayerPieces four({.layers = 30, .bytes_per_token = 1, .pieces = 4});
  EXPECT_EQ(four.PiecesFor(1), 4);
  EXPECT_EQ(LayerPieces({.layers = 3, .bytes_per_token = 1, .pieces = 4}).PiecesFor(1), 3);
}

TEST(LayerPieces, OneMeansNone) {
  EXPECT_FALSE(LayerPieces({.layers = 30, .bytes_per_token = 1, .pieces = 1}).on());
  EXPECT_TRUE(LayerPieces({.layers = 30, .bytes_per_token = 1, .pieces = 0}).on());
}

TEST(LayerPieces, TheLastOneEndsWithTheLastLayerWhateverTheirNumber) {
  for (const int32_t layers : {1, 2, 7, 30, 32}) {
    const LayerPieces pieces({.layers = layers, .bytes_per_token = 1, .pieces = 0});
    for (int32_t count = 1; count <= layers; ++count) {
      const std::vector<int32_t> ends = Ends(pieces, layers, count);
      EXPECT_EQ(ends.size(), static_cast<size_t>(count)) << layers;
      EXPECT_EQ(ends.back(), layers);
    }
  }
}

TEST(LayerPieces, NumberGrowsWithTheTimeToSend) {
  LayerPieces pieces({.layers = 30, .bytes_per_token = 23'040, .pieces = 0});
  EXPECT_EQ(pieces.PiecesFor(1), 1);
  const int32_t at_first = pieces.PiecesFor(512);
  EXPECT_GT(at_first, 1);
  EXPECT_EQ(pieces.PiecesFor(1 << 20), 30);
  for (int i = 0; i < 50; ++i) pieces.OnSent(64 << 20, 64 << 20);  // slow
  EXPECT_EQ(pieces.PiecesFor(512), 30);
  for (int i = 0; i < 50; ++i) pieces.OnSent(64 << 20, 1);  // faster than any copy
  EXPECT_LT(pieces.PiecesFor(512), at_first);
  EXPECT_GT(pieces.PiecesFor(4096), 1);
}

TEST(LayerPieces, SmallOrUntimedTransfersDoNotChangeTheBandwidthEstimate) {
  LayerPieces pieces({.layers = 30, .bytes_per_token = 23'040, .pieces = 0});
  const int32_t before = pieces.PiecesFor(512);
  for (int i = 0; i < 50; ++i) pieces.OnSent(1000, 1'000'000);
  for (int i = 0; i < 50; ++i) pieces.OnSent(64 << 20, 0);
  EXPECT_EQ(pieces.PiecesFor(512), before);
}

}  // namespace
}  // namespace baton
