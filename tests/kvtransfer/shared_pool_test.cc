#include "kvtransfer/shm/shared_pool.h"

#include <optional>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kvtransfer/transfer_test_worker.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

// Two pools, of 64 and of 32 blocks. The first lends to the second.
class SharedPoolTest : public ::testing::TestWithParam<KvLayoutKind> {
 protected:
  struct Pool {
    explicit Pool(const TestShape& shape)
        : layout(MakeLayout(shape)),
          memory(*SharedPageBuffer::Reserve(layout.pool_bytes(), "pool")),
          lender(memory.data(), layout, memory.fd()) {}
    KvPoolLayout layout;
    SharedPageBuffer memory;
    HostPool lender;
  };

  SharedPoolTest() {
    std::mt19937 random(kSeed);
    for (size_t i = 0; i < ours_.memory.size(); ++i) {
      ours_.memory.data()[i] = static_cast<std::byte>(random());
    }
    lent_.emplace(*LentBlocks::Create(ours_.lender));
    view_.emplace(*PeerPool::Map(theirs_.layout, kGeometry, {.num_blocks = 64}, lent_->file().fd(),
                                 lent_->file().generations_fd()));
  }

  SharedBlockFrame Lend(uint64_t transfer, int32_t block, int32_t valid = 16) {
    return lent_->Lend({.serial = 1,
                        .blocks = BlockId(block),
                        .frame = {.transfer_id = 7,
                                  .receiver_epoch = Epoch(2),
                                  .sender_transfer = transfer,
                                  .block = 3,
                                  .valid_tokens = valid,
                                  .payload_bytes = BlockValidBytes(ours_.layout, valid),
                                  .piece_crcs = {}}},
                       checksums_);
  }
  absl::Status Copy(const SharedBlockFrame& frame, int32_t to) {
    const LandingPart whole{.blocks = BlockId(to), .tokens = frame.block.valid_tokens};
    return Copy(frame, {whole}, CopyStores::kStreaming);
  }
  absl::Status Copy(const SharedBlockFrame& frame, const LandingParts& parts, CopyStores stores) {
    const PoolLease lease = *theirs_.lender.Acquire(PoolAccess::kLand, parts, LayerRange{});
    return view_->Copy(frame, lease.bytes(), stores);
  }
  std::byte* Piece(const Pool& pool, int32_t block, int32_t piece) {
    return pool.memory.data() + pool.layout.PieceOffset(piece / 2, piece % 2 == 1, block);
  }

  static constexpr uint32_t kSeed = 11;
  const KvGeometry kGeometry{.layout = GetParam(), .block_size = 16};
  Pool ours_{TestShape{.layout = GetParam(), .num_blocks = 64}};
  Pool theirs_{TestShape{.layout = GetParam(), .num_blocks = 32}};
  BlockChecksums checksums_{ours_.layout};
  std::optional<LentBlocks> lent_;
  std::optional<PeerPool> view_;
};

INSTANTIATE_TEST_SUITE_P(Each, SharedPoolTest,
                         ::testing::Values(KvLayoutKind::kBlockMajor, KvLayoutKind::kLayerMajor),
                         [](const auto& info) {
                           return info.param == KvLayoutKind::kBlockMajor ? "BlockMajor"
                                                                          : "LayerMajor";
                         });

TEST_P(SharedPoolTest, CopiesTheValidTokensOfABlockAndNothingElse) {
  for (const int32_t valid : {16, 5}) {
    std::memset(theirs_.memory.data(), 0xEE, theirs_.memory.size());
    ASSERT_TRUE(Copy(Lend(1, 40, valid), 9).ok());
    int64_t written = 0;
    for (int32_t piece = 0; piece < PieceCount(ours_.layout); ++piece) {
      const int64_t bytes = PieceValidBytes(ours_.layout, {}, valid);
      EXPECT_EQ(std::memcmp(Piece(ours_, 40, piece), Piece(theirs_, 9, piece), bytes), 0);
      std::memset(Piece(theirs_, 9, piece), 0xEE, bytes);
      written += bytes;
    }
    EXPECT_EQ(written, BlockValidBytes(ours_.layout, valid));
    for (size_t i = 0; i < theirs_.memory.size(); ++i) {
      ASSERT_EQ(theirs_.memory.data()[i], std::byte{0xEE}) << i;
    }
  }
}

TEST_P(SharedPoolTest, PartsOfABlockGoWhereTheyBelongAndTheRestIsOnlySummed) {
  std::memset(theirs_.memory.data(), 0xEE, theirs_.memory.size());
  const LandingParts parts = {
      {.blocks = BlockId(9), .block_token = 12, .payload_token = 3, .tokens = 4},
      {.blocks = BlockId(2), .block_token = 0, .payload_token = 7, .tokens = 6}};
  SharedBlockFrame frame = Lend(1, 40, 13);
  ASSERT_TRUE(Copy(frame, parts, CopyStores::kStreaming).ok());
  for (int32_t piece = 0; piece < PieceCount(ours_.layout); ++piece) {
    for (const LandingPart& part : parts) {
      const std::byte* const from =
          Piece(ours_, 40, piece) + PieceValidBytes(ours_.layout, {}, part.payload_token);
      const std::span<std::byte> to =
          PieceBytes(theirs_.memory.data(), theirs_.layout, {part}, {}).Part(PieceAt(piece), 0);
      ASSERT_EQ(std::memcmp(from, to.data(), to.size()), 0);
      std::memset(to.data(), 0xEE, to.size());
    }
  }
  for (size_t i = 0; i < theirs_.memory.size(); ++i) {
    ASSERT_EQ(theirs_.memory.data()[i], std::byte{0xEE}) << i;
  }
  *Piece(ours_, 40, 3) ^= std::byte{1};  // of a token that has no place
  EXPECT_EQ(Copy(frame, parts, CopyStores::kCached).code(), absl::StatusCode::kDataLoss);
}

TEST_P(SharedPoolTest, ABlockThatChangedWhileLentIsNamed) {
  const SharedBlockFrame frame = Lend(1, 5);
  *Piece(ours_, 5, 3) ^= std::byte{1};
  const absl::Status status = Copy(frame, 0);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("block 3 layer 1 V"));
}

TEST_P(SharedPoolTest, ABlockTakenBackIsRefusedWhateverItHolds) {
  const SharedBlockFrame frame = Lend(1, 5);
  EXPECT_TRUE(Copy(frame, 0).ok());
  lent_->Return(1);
  EXPECT_EQ(Copy(frame, 0).code(), absl::StatusCode::kFailedPrecondition);
  // Lent again under a new generation; the old frame stays invalid.
  const SharedBlockFrame again = Lend(2, 5);
  EXPECT_NE(again.place.generation, frame.place.generation);
  EXPECT_TRUE(Copy(again, 0).ok());
  EXPECT_EQ(Copy(frame, 0).code(), absl::StatusCode::kFailedPrecondition);
}

// A pool that shrinks removes memory that a peer has mapped. The peer must not crash, and must not
// publish KV.
TEST_P(SharedPoolTest, ABlockWhoseMemoryIsGoneIsRefused) {
  const SharedBlockFrame lent = Lend(1, 5);
  const SharedBlockFrame returned = Lend(2, 6);
  lent_->Return(2);
  ours_.memory.Discard(0, ours_.memory.size());
  EXPECT_EQ(Copy(returned, 0).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Copy(lent, 0).code(), absl::StatusCode::kDataLoss)
      << "the block is still lent but reads as zeros";
}

TEST_P(SharedPoolTest, TheGenerationMovesOnWhenTheLastOfSeveralTransfersEnds) {
  const SharedBlockFrame first = Lend(1, 5);
  const SharedBlockFrame second = Lend(2, 5);
  EXPECT_EQ(first.place.generation, second.place.generation);
  EXPECT_EQ(first.block.piece_crcs, second.block.piece_crcs);
  lent_->Return(1);
  EXPECT_TRUE(Copy(second, 0).ok());
  lent_->Return(1);  // again: it has no loans any more
  EXPECT_TRUE(Copy(second, 0).ok());
  lent_->Return(2);
  EXPECT_EQ(Copy(second, 0).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_P(SharedPoolTest, TransfersOfDifferentLengthsOfABlockAreSummedApart) {
  const SharedBlockFrame part = Lend(1, 5, 7);
  const SharedBlockFrame whole = Lend(2, 5, 16);
  EXPECT_NE(part.block.piece_crcs, whole.block.piece_crcs);
  EXPECT_TRUE(Copy(part, 0).ok());
  EXPECT_TRUE(Copy(whole, 1).ok());
}

TEST_P(SharedPoolTest, ABlockThatThePeerDoesNotHaveIsOutOfRange) {
  SharedBlockFrame frame = Lend(1, 5);
  for (const int32_t block : {64, -1, INT32_MAX}) {
    frame.place.pool_block = block;
    EXPECT_EQ(Copy(frame, 0).code(), absl::StatusCode::kOutOfRange) << block;
  }
}

TEST_P(SharedPoolTest, FilesTooShortForTheDeclaredPoolAreRefused) {
  const auto code = [&](int64_t blocks, int pool, int generations) {
    return PeerPool::Map(theirs_.layout, kGeometry, {.num_blocks = blocks}, pool, generations)
        .status()
        .code();
  };
  const int pool = lent_->file().fd();
  const int words = lent_->file().generations_fd();
  EXPECT_EQ(code(64, pool, words), absl::StatusCode::kOk);
  EXPECT_EQ(code(INT32_MAX, pool, words), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(0, pool, words), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(-1, pool, words), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(64, words, pool), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(64, pool, -1), absl::StatusCode::kInvalidArgument);
}

TEST_P(SharedPoolTest, APoolInNoFileIsNotLent) {
  HostPool pool(ours_.memory.data(), ours_.layout);
  EXPECT_EQ(LentBlocks::Create(pool).status().code(), absl::StatusCode::kInvalidArgument);
}

// Layers 0 and 2 belong to a window; layer 1 has full attention.
TEST_P(SharedPoolTest, ABlockOfEachGroupIsLentUnderItsOwnGeneration) {
  Pool ours(TestShape{.layout = GetParam(), .groups = "wfw"});
  Pool theirs(TestShape{.layout = GetParam(), .num_blocks = 32, .groups = "wfw"});
  std::mt19937 random(kSeed);
  for (size_t i = 0; i < ours.memory.size(); i += 7) {
    ours.memory.data()[i] = static_cast<std::byte>(random());
  }
  LentBlocks lent = *LentBlocks::Create(ours.lender);
  BlockChecksums checksums(ours.layout);
  const SharedPoolFrame told = lent.Describe();
  EXPECT_EQ(told, (SharedPoolFrame{.num_blocks = 64, .window_num_blocks = {40}}));
  const auto map = [&](const SharedPoolFrame& frame) {
    return PeerPool::Map(theirs.layout, kGeometry, frame, lent.file().fd(),
                         lent.file().generations_fd());
  };
  EXPECT_EQ(map({.num_blocks = 64}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(map({.num_blocks = 64, .window_num_blocks = {40, 40}}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(map({.num_blocks = 64, .window_num_blocks = {0}}).ok());
  EXPECT_FALSE(map({.num_blocks = 64, .window_num_blocks = {INT32_MAX}}).ok());
  const PeerPool view = *map(told);
  const auto lend = [&](uint64_t transfer, const GroupBlocks& blocks) {
    const int64_t bytes = BlockValidBytes(ours.layout, 13, {}, blocks.groups());
    return lent.Lend({.serial = 1,
                      .blocks = blocks,
                      .frame = {.transfer_id = 7,
                                .receiver_epoch = Epoch(2),
                                .sender_transfer = transfer,
                                .block = 3,
                                .valid_tokens = 13,
                                .payload_bytes = bytes,
                                .piece_crcs = {}}},
                     checksums);
  };
  GroupBlocks from(BlockId(40));
  from.Set(1, BlockId(39));
  GroupBlocks to(BlockId(9));
  to.Set(1, BlockId(2));
  const auto copy = [&](const SharedBlockFrame& frame, const GroupBlocks& target) {
    const PoolLease lease =
        *theirs.lender.Acquire(PoolAccess::kLand, LeadingTokens(target, 13), LayerRange{});
    return view.Copy(frame, lease.bytes(), CopyStores::kCached);
  };
  const SharedBlockFrame frame = lend(1, from);
  ASSERT_EQ(frame.windows.size(), 1u);
  EXPECT_EQ(frame.windows[0].pool_block, 39);
  ASSERT_TRUE(copy(frame, to).ok());
  EXPECT_EQ(PieceBytes(theirs.memory.data(), theirs.layout, LeadingTokens(to, 13), {}).Checksums(),
            PieceBytes(ours.memory.data(), ours.layout, LeadingTokens(from, 13), {}).Checksums());

  // Whatever a hostile sender names, the error is typed.
  EXPECT_EQ(copy(frame, BlockId(9)).code(), absl::StatusCode::kInvalidArgument);
  SharedBlockFrame bad = frame;
  bad.windows.clear();
  EXPECT_EQ(copy(bad, to).code(), absl::StatusCode::kInvalidArgument);
  bad = frame;
  bad.windows.push_back(frame.place);
  EXPECT_EQ(copy(bad, to).code(), absl::StatusCode::kInvalidArgument);
  for (const int32_t outside : {-1, 40, INT32_MAX, INT32_MIN}) {
    bad = frame;
    bad.windows[0].pool_block = outside;
    EXPECT_EQ(copy(bad, to).code(), absl::StatusCode::kOutOfRange) << outside;
  }

  // The same full block with another window block, for another receiver.
  GroupBlocks swapped = from;
  swapped.Set(1, BlockId(8));
  const SharedBlockFrame other = lend(2, swapped);
  EXPECT_NE(other.block.piece_crcs, frame.block.piece_crcs);
  EXPECT_TRUE(copy(other, to).ok());
  lent.Return(1);  // ends the window block's loan, but not the full block's
  const absl::Status stale = copy(frame, to);
  EXPECT_EQ(stale.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(stale.message()), HasSubstr("of the sender's block 39, it has 1"));
  EXPECT_TRUE(copy(other, to).ok());
  lent.Return(2);
  EXPECT_EQ(copy(other, to).code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace baton
