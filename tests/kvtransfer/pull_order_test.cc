#include "kvtransfer/protocol/pull_order.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace baton {
namespace {

constexpr int32_t kLayers = 8;

LayerRange Layers(int32_t first, int32_t count) { return {.first = first, .count = count}; }

TEST(PullOrder, WholeBlocksArePulledInOrderAndUpToALimit) {
  PullOrder order(10, kLayers);
  EXPECT_EQ(order.Next({.blocks = 0, .layers = 0}), std::nullopt);
  EXPECT_EQ(order.Next({.blocks = 4, .layers = 0}), (BlockRun{0, 4, {}}));
  EXPECT_EQ(order.Next({.blocks = 4, .layers = 0}, 3), (BlockRun{0, 3, {}}));
  order.Ask({0, 3, {}});
  EXPECT_EQ(order.Next({.blocks = 4, .layers = 0}, 3), std::nullopt);
  EXPECT_EQ(order.Next({.blocks = 4, .layers = 0}), (BlockRun{3, 1, {}}));
}

TEST(PullOrder, SlicesSpanAllBlocksThatAreLeftAndFollowTheWholeOnes) {
  PullOrder order(10, kLayers);
  order.Ask({0, 3, {}});
  EXPECT_EQ(order.Next({.blocks = 4, .layers = 2}), (BlockRun{3, 1, {}}));
  order.Ask({3, 1, {}});
  EXPECT_EQ(order.Next({.blocks = 4, .layers = 2}), (BlockRun{4, 6, Layers(0, 2)}));
  order.Ask({4, 6, Layers(0, 2)});
  EXPECT_EQ(order.Next({.blocks = 4, .layers = 2}), std::nullopt);
  EXPECT_EQ(order.Next({.blocks = 4, .layers = 5}), (BlockRun{4, 6, Layers(2, 3)}));
  // The end is announced while layers are missing.
  EXPECT_EQ(order.Next({.blocks = 10, .layers = 0}), (BlockRun{4, 6, Layers(2, 6)}));
  order.Ask({4, 6, Layers(2, 6)});
  EXPECT_EQ(order.Next({.blocks = 10, .layers = 0}), std::nullopt);
}

TEST(PullOrder, LayersThatWereNotRequestedBeforeTheEndDoNotMatter) {
  PullOrder order(10, kLayers);
  EXPECT_EQ(order.Next({.blocks = 10, .layers = 0}), (BlockRun{0, 10, {}}));
}

TEST(PullOrder, PartsAreSentInTheOrderOfTheirRequests) {
  PullOrder order(3, 2);
  order.Ask({0, 1, {}});
  order.Ask({1, 2, Layers(0, 1)});
  order.Ask({1, 2, Layers(1, 1)});
  const std::vector<std::pair<BlockPart, bool>> expected = {{{0, {}}, true},
                                                            {{1, Layers(0, 1)}, false},
                                                            {{2, Layers(0, 1)}, false},
                                                            {{1, Layers(1, 1)}, true},
                                                            {{2, Layers(1, 1)}, true}};
  for (const auto& [part, whole] : expected) {
    ASSERT_FALSE(order.empty());
    EXPECT_EQ(order.Front(), part);
    EXPECT_EQ(order.Pop(), whole);
  }
  EXPECT_TRUE(order.empty());
}

TEST(PullOrder, PullsOutOfOrderOrUnannouncedAreRefused) {
  PullOrder order(10, kLayers);
  order.Ask({0, 4, {}});
  const AnnouncedBlocks some{.blocks = 5, .layers = 0};
  const AnnouncedBlocks layers{.blocks = 4, .layers = 3};
  for (const BlockRun& run : {BlockRun{4, 2, {}}, BlockRun{3, 1, {}}, BlockRun{4, 0, {}},
                              BlockRun{4, INT32_MAX, {}}, BlockRun{4, 6, Layers(0, 1)}}) {
    EXPECT_EQ(order.Check(run, some).code(), absl::StatusCode::kOutOfRange);
  }
  EXPECT_TRUE(order.Check({4, 1, {}}, some).ok());
  for (const BlockRun& run :
       {BlockRun{4, 1, {}}, BlockRun{4, 6, Layers(0, 4)}, BlockRun{4, 6, Layers(1, 1)},
        BlockRun{4, 5, Layers(0, 1)}, BlockRun{5, 5, Layers(0, 1)}}) {
    EXPECT_EQ(order.Check(run, layers).code(), absl::StatusCode::kOutOfRange);
  }
  EXPECT_TRUE(order.Check({4, 6, Layers(0, 3)}, layers).ok());
  order.Ask({4, 6, Layers(0, 3)});
  EXPECT_FALSE(order.Check({4, 6, {}}, {.blocks = 10, .layers = 0}).ok()) << "layers came already";
  EXPECT_TRUE(order.Check({4, 6, Layers(3, 5)}, {.blocks = 10, .layers = 0}).ok());
}

// For any sequence of announcements and any request window, every layer of every block is sent
// once, in an order on which both ends agree.
TEST(PullOrder, EveryLayerOfEveryBlockIsPulledOnceForAnyAnnouncements) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 300; ++round) {
    const auto blocks = static_cast<int32_t>(1 + random() % 12);
    PullOrder receiver(blocks, kLayers);
    PullOrder sender(blocks, kLayers);
    AnnouncedBlocks announced;
    std::vector<int32_t> got(static_cast<size_t>(blocks), 0);
    int32_t whole = 0;
    while (whole < blocks) {
      const uint32_t what = random() % 4;
      if (what == 0 && announced.layers == 0 && announced.blocks < blocks) {
        announced.blocks += static_cast<int32_t>(random() % (blocks - announced.blocks + 1));
      } else if (what == 1 && announced.blocks < blocks && announced.layers < kLayers) {
        ++announced.layers;
      } else if (what == 2 && random() % 3 == 0) {
        announced = {.blocks = blocks, .layers = 0};
      }
      const auto end = static_cast<int32_t>(whole + 1 + random() % 4);
      if (const auto run = receiver.Next(announced, end)) {
        ASSERT_TRUE(sender.Check(*run, announced).ok());
        receiver.Ask(*run);
        sender.Ask(*run);
      }
      while (!sender.empty() && random() % 3 != 0) {
        const BlockPart part = sender.Front();
        ASSERT_EQ(part, receiver.Front());
        int32_t& layers = got[static_cast<size_t>(part.block)];
        ASSERT_EQ(layers, part.layers.first);
        layers += part.layers.all() ? kLayers : part.layers.count;
        ASSERT_EQ(sender.Pop(), layers == kLayers);
        whole += receiver.Pop() ? 1 : 0;
      }
    }
    for (const int32_t layers : got) EXPECT_EQ(layers, kLayers);
    EXPECT_TRUE(receiver.empty());
    EXPECT_EQ(receiver.Next(announced), std::nullopt);
  }
}

}  // namespace
}  // namespace baton
