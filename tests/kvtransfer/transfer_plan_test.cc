#include "kvtransfer/protocol/transfer_plan.h"

#include <algorithm>
#include <random>

#include "gtest/gtest.h"
#include "tests/kvtransfer/transfer_test_worker.h"

namespace baton {
namespace {

TEST(TransferPlan, CountsBlocksAndValidTokens) {
  EXPECT_EQ(BlocksForTokens(16, 1), 1);
  EXPECT_EQ(BlocksForTokens(16, 16), 1);
  EXPECT_EQ(BlocksForTokens(16, 17), 2);
  EXPECT_EQ(BlocksForTokens(16, INT32_MAX), (int64_t{INT32_MAX} + 15) / 16);
  EXPECT_EQ(ValidTokens(16, 17, 0), 16);
  EXPECT_EQ(ValidTokens(16, 17, 1), 1);
  EXPECT_EQ(ValidTokens(16, 32, 1), 16);
}

TEST(TransferPlan, BlocksHoldingWhatIsMissingBeginInTheMiddleOfOne) {
  EXPECT_EQ(BlocksHolding(0, 33, 16), (SequenceBlocks{0, 3}));
  EXPECT_EQ(BlocksHolding(16, 33, 32), (SequenceBlocks{0, 2}));
  EXPECT_EQ(BlocksHolding(32, 33, 32), (SequenceBlocks{1, 1}));
  EXPECT_EQ(BlocksHolding(48, 33, 16), (SequenceBlocks{3, 0})) << "nothing is missing";
  EXPECT_EQ(BlocksHolding(int64_t{1} << 31, INT32_MAX, 128), (SequenceBlocks{1 << 24, 0}));
  TransferTicket ticket;
  ticket.first_block = 3;
  ticket.block_count = 2;
  EXPECT_EQ(SenderBlocks(ticket, 80, 16), (SequenceBlocks{3, 2})) << "as the sender's";
  ticket.block_size = 8;
  EXPECT_EQ(SenderBlocks(ticket, 40, 16), (SequenceBlocks{1, 2}));
}

TEST(TransferPlan, EqualBlocksLandWhole) {
  const std::vector<BlockId> blocks = MakeBlocks(7, 3);
  const LandingParts parts = PlaceTokens(48, 16, 32, 16, blocks);
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0], (LandingPart{BlockId(8), 0, 0, 16}));
}

// Whatever the sizes: each token that the receiver lacks lands once, in the block and the slot that
// its number says, from its own place in the payload.
TEST(TransferPlan, EveryMissingTokenLandsOnceWhereItsNumberSays) {
  constexpr uint32_t kSeed = 41;
  SCOPED_TRACE(kSeed);
  std::mt19937 random(kSeed);
  for (int round = 0; round < 3000; ++round) {
    const int32_t theirs = 1 << random() % 8;
    const int32_t ours = 1 << random() % 8;
    const auto tokens = static_cast<int32_t>(1 + random() % 700);
    const int32_t whole = BlocksForTokens(ours, tokens);
    const auto first_block = static_cast<int32_t>(random() % (whole + 1));
    SCOPED_TRACE(testing::Message() << theirs << " to " << ours << ", " << tokens << " tokens from "
                                    << first_block * ours);
    std::vector<BlockId> blocks = MakeBlocks(0, whole - first_block);
    std::shuffle(blocks.begin(), blocks.end(), random);
    TransferTicket ticket;
    ticket.first_block = first_block;
    ticket.block_count = whole - first_block;
    ticket.block_size = ours;
    const SequenceBlocks sent = SenderBlocks(ticket, tokens, theirs);
    std::vector<int> landed(tokens, 0);
    for (int32_t block = sent.first; block < sent.first + sent.count; ++block) {
      const int32_t valid = ValidTokens(theirs, tokens, block);
      ASSERT_TRUE(valid >= 1 && valid <= theirs);
      int32_t next = -1;
      for (const LandingPart& part :
           PlaceTokens(block * theirs, valid, first_block * ours, ours, blocks)) {
        ASSERT_GE(part.tokens, 1);
        ASSERT_TRUE(next == -1 || part.payload_token == next) << "a gap behind the first part";
        next = part.payload_token + part.tokens;
        for (int32_t i = 0; i < part.tokens; ++i) {
          const int32_t token = block * theirs + part.payload_token + i;
          ASSERT_LT(token, tokens);
          ASSERT_EQ(part.block, blocks[token / ours - first_block]);
          ASSERT_EQ(part.block_token + i, token % ours);
          ++landed[token];
        }
      }
      ASSERT_EQ(next, valid) << "the payload's end landed nowhere";
    }
    for (int32_t token = 0; token < tokens; ++token) {
      ASSERT_EQ(landed[token], token >= first_block * ours ? 1 : 0) << token;
    }
  }
}

}  // namespace
}  // namespace baton
