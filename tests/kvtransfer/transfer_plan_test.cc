#include "kvtransfer/protocol/transfer_plan.h"

#include <algorithm>
#include <random>

#include "gtest/gtest.h"
#include "kvtransfer/protocol/send_session.h"
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
  EXPECT_EQ(SenderBlocks(ticket, 80, 16), (SequenceBlocks{3, 2}))
      << "block size 0 means the sender's";
  ticket.block_size = 8;
  EXPECT_EQ(SenderBlocks(ticket, 40, 16), (SequenceBlocks{1, 2}));
}

TEST(TransferPlan, EqualBlocksLandWhole) {
  const std::vector<BlockId> blocks = MakeBlocks(7, 3);
  const LandingParts parts = PlaceTokens(48, 16, 32, 16, 1, blocks);
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0], (LandingPart{BlockId(8), 0, 0, 16}));
}

// For any block sizes, each token that the receiver lacks lands once. It lands in the block and
// slot of its number, from its own place in the payload.
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
           PlaceTokens(block * theirs, valid, first_block * ours, ours, 1, blocks)) {
        ASSERT_GE(part.tokens, 1);
        ASSERT_TRUE(next == -1 || part.payload_token == next) << "a gap behind the first part";
        next = part.payload_token + part.tokens;
        for (int32_t i = 0; i < part.tokens; ++i) {
          const int32_t token = block * theirs + part.payload_token + i;
          ASSERT_LT(token, tokens);
          ASSERT_EQ(part.blocks[0], blocks[token / ours - first_block]);
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

// Sender and receiver agree on the contents of each block, for any block sizes. Every needed token
// of a group lands where its number says. A window adds little else.
TEST(TransferPlan, WindowsTravelWhereTheyAreNeeded) {
  constexpr uint32_t kSeed = 43;
  SCOPED_TRACE(kSeed);
  std::mt19937 random(kSeed);
  for (int round = 0; round < 3000; ++round) {
    const int32_t theirs = 1 << random() % 7;
    const int32_t ours = 1 << random() % 7;
    const auto tokens = static_cast<int32_t>(1 + random() % 300);
    const int32_t window[] = {static_cast<int32_t>(1 + random() % 350)};
    const int32_t whole = BlocksForTokens(ours, tokens);
    TransferTicket ticket;
    ticket.first_block = static_cast<int32_t>(random() % (whole + 1));
    ticket.block_count = whole - ticket.first_block;
    ticket.block_size = ours;
    ticket.window_first_blocks = {ticket.first_block +
                                  static_cast<int32_t>(random() % (ticket.block_count + 1))};
    ASSERT_TRUE(CheckTicket(ticket, tokens, theirs, 2).ok());
    const MovedTokens moved(ticket, tokens, theirs, window);
    const auto needed = [&](int32_t token) {
      return token < tokens && token >= ticket.window_first_blocks[0] * ours &&
             token > tokens - window[0];
    };
    const auto any = [&](int32_t block, int32_t size) {
      for (int32_t token = block * size; token < (block + 1) * size; ++token) {
        if (needed(token)) return true;
      }
      return false;
    };
    std::vector<BlockId> rows;
    for (int32_t block = ticket.first_block; block < whole; ++block) {
      ASSERT_EQ(moved.GroupsOf(block, ours).Has(1), any(block, ours));
      rows.push_back(BlockId(block));
      rows.push_back(any(block, ours) ? BlockId(1000 + block) : kNoBlock);
    }
    std::vector<int> landed(tokens, 0);
    const SequenceBlocks sent = SenderBlocks(ticket, tokens, theirs);
    for (int32_t block = sent.first; block < sent.first + sent.count; ++block) {
      const GroupSet groups = moved.GroupsOf(block, theirs);
      ASSERT_EQ(groups.Has(1), any(block, theirs));
      ASSERT_TRUE(groups.Has(0));
      const int32_t valid = ValidTokens(theirs, tokens, block);
      GroupSet placed;
      for (const LandingPart& part :
           PlaceTokens(block * theirs, valid, ticket.first_block * ours, ours, 2, rows, groups)) {
        for (int32_t group = 0; group < 2; ++group) {
          if (part.blocks[group] != kNoBlock) placed.Add(group);
        }
        if (part.blocks[1] == kNoBlock) continue;
        for (int32_t i = 0; i < part.tokens; ++i) {
          const int32_t token = block * theirs + part.payload_token + i;
          ASSERT_EQ(part.blocks[1], BlockId(1000 + token / ours));
          ++landed[token];
        }
      }
      ASSERT_EQ(placed, groups);
    }
    for (int32_t token = 0; token < tokens; ++token) {
      ASSERT_LE(landed[token], 1);
      ASSERT_TRUE(!needed(token) || landed[token] == 1);
      if (landed[token] == 1) {
        ASSERT_TRUE(any(token / theirs, theirs) && any(token / ours, ours));
      }
    }
  }
}

}  // namespace
}  // namespace baton
