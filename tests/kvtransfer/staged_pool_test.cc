#include "kvtransfer/pool/staged_pool.h"

#include <cstring>
#include <optional>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kvtransfer/pool/lease_request.h"
#include "tests/kvtransfer/transfer_test_worker.h"

namespace baton {
namespace {

class StagedPoolTest : public ::testing::TestWithParam<KvLayoutKind> {
 protected:
  StagedPoolTest() {
    for (size_t i = 0; i < pool_.size(); ++i) {
      pool_.data()[i] = static_cast<std::byte>(i * 37 >> 3);
    }
  }

  TransferPool& lender() { return pool_.lender(); }
  std::optional<PoolLease> Read(int32_t block, int32_t tokens = 16, LayerRange layers = {}) {
    return lender().Acquire(PoolAccess::kRead, LeadingTokens(BlockId(block), tokens), layers);
  }
  static bool IsReady(PoolLease& lease) {
    const absl::StatusOr<bool> ready = lease.Ready();
    EXPECT_TRUE(ready.ok()) << ready.status();
    return ready.ok() && *ready;
  }
  static void WaitFor(PoolLease& lease) {
    while (!IsReady(lease)) {
    }
  }
  // Returns the bytes in payload order.
  static std::vector<std::byte> Copied(const PieceBytes& pieces) {
    std::vector<std::byte> bytes;
    for (const iovec& run : pieces.Runs()) {
      const auto* const at = static_cast<const std::byte*>(run.iov_base);
      bytes.insert(bytes.end(), at, at + run.iov_len);
    }
    return bytes;
  }

  const KvPoolLayout layout_ = MakeLayout({.layout = GetParam()});
  TestPool pool_{layout_, PoolMemory::kDevice, {.read_buffers = 2, .land_buffers = 2}};
};

INSTANTIATE_TEST_SUITE_P(Layouts, StagedPoolTest,
                         ::testing::Values(KvLayoutKind::kBlockMajor, KvLayoutKind::kLayerMajor));

TEST_P(StagedPoolTest, TheHostCannotReadThePoolsMemory) {
  EXPECT_EQ(lender().memory(), PoolMemory::kDevice);
  EXPECT_FALSE(lender().exported().has_value());
  const volatile std::byte* const address = lender().AddressForCopyEngine();
  EXPECT_DEATH([[maybe_unused]] const std::byte stray = *address, "");
}

TEST_P(StagedPoolTest, AReadLeaseHasTheBytesOnceItIsReady) {
  for (const int32_t tokens : {1, 5, 16}) {
    for (const LayerRange layers : {LayerRange{}, LayerRange{.first = 1, .count = 1}}) {
      pool_.copies().looks = 3;
      std::optional<PoolLease> lease = Read(7, tokens, layers);
      ASSERT_TRUE(lease.has_value());
      EXPECT_FALSE(IsReady(*lease));
      EXPECT_EQ(lease->bytes().Part(*lease->bytes().pieces().begin(), 0)[0], SlowCopies::kGarbage);
      WaitFor(*lease);
      EXPECT_EQ(Copied(lease->bytes()), Copied(pool_.Bytes(BlockId(7), tokens, layers)));
      EXPECT_EQ(lease->bytes().Checksums(), pool_.Bytes(BlockId(7), tokens, layers).Checksums());
    }
  }
}

TEST_P(StagedPoolTest, StoredBytesAreInThePoolOnceTheLeaseIsReadyAgain) {
  const LandingParts parts = {
      {.blocks = BlockId(3), .block_token = 12, .payload_token = 0, .tokens = 4},
      {.blocks = BlockId(9), .block_token = 0, .payload_token = 4, .tokens = 7}};
  const LayerRange layers{.first = 1, .count = 2};
  const std::vector<std::byte> before(pool_.data(), pool_.data() + pool_.size());
  const PieceBytes target(pool_.data(), layout_, parts, layers);
  pool_.copies().looks = 2;
  PoolLease lease = *lender().Acquire(PoolAccess::kLand, parts, layers);
  ASSERT_TRUE(IsReady(lease));
  for (const iovec& run : lease.bytes().Runs()) std::memset(run.iov_base, 0x5A, run.iov_len);
  EXPECT_EQ(std::memcmp(pool_.data(), before.data(), before.size()), 0) << "not stored yet";
  lease.Store();
  EXPECT_FALSE(IsReady(lease));
  WaitFor(lease);
  std::vector<std::byte> expected = before;
  const PieceBytes model(expected.data(), layout_, parts, layers);
  for (const iovec& run : model.Runs()) std::memset(run.iov_base, 0x5A, run.iov_len);
  EXPECT_EQ(std::memcmp(pool_.data(), expected.data(), expected.size()), 0);
  EXPECT_EQ(target.Checksums(), lease.bytes().Checksums());
}

TEST_P(StagedPoolTest, BytesThatAreNotStoredNeverReachThePool) {
  const std::vector<std::byte> before(pool_.data(), pool_.data() + pool_.size());
  {
    PoolLease lease = *lender().Acquire(PoolAccess::kLand, LeadingTokens(BlockId(3), 16), {});
    for (const iovec& run : lease.bytes().Runs()) std::memset(run.iov_base, 0x5A, run.iov_len);
  }
  EXPECT_EQ(pool_.copies().begun, 0);
  EXPECT_EQ(std::memcmp(pool_.data(), before.data(), before.size()), 0);
}

TEST_P(StagedPoolTest, ThereAreAsManyLeasesAsBuffersOfEachKind) {
  pool_.copies().looks = 0;
  std::vector<PoolLease> leases;
  for (int i = 0; i < 2; ++i) {
    leases.push_back(*Read(i));
    leases.push_back(*lender().Acquire(PoolAccess::kLand, LeadingTokens(BlockId(i), 16), {}));
  }
  EXPECT_FALSE(Read(5).has_value());
  EXPECT_FALSE(lender().Acquire(PoolAccess::kLand, LeadingTokens(BlockId(5), 16), {}).has_value());
  leases.erase(leases.begin());  // one read lease
  EXPECT_TRUE(Read(5).has_value());
  EXPECT_FALSE(lender().Acquire(PoolAccess::kLand, LeadingTokens(BlockId(5), 16), {}).has_value());
  leases.pop_back();
  EXPECT_TRUE(lender().Acquire(PoolAccess::kLand, LeadingTokens(BlockId(5), 16), {}).has_value());
}

TEST_P(StagedPoolTest, ABufferIsNotLentAgainWhileTheCopyOfAReleasedLeaseRuns) {
  pool_.copies().looks = 4;
  std::optional<PoolLease> kept = Read(1);
  WaitFor(*kept);
  Read(2).reset();  // its copy continues
  EXPECT_FALSE(lender().Settled());
  EXPECT_FALSE(Read(3).has_value());
  pool_.copies().LetEnd();
  EXPECT_TRUE(lender().Settled());
  std::optional<PoolLease> lease = Read(3);
  ASSERT_TRUE(lease.has_value());
  EXPECT_TRUE(lender().Settled()) << "held leases do not count";
  WaitFor(*lease);
  EXPECT_EQ(Copied(lease->bytes()), Copied(pool_.Bytes(BlockId(3), 16)));
}

TEST_P(StagedPoolTest, ACopyThatFailsFailsItsLeaseAlone) {
  pool_.copies().looks = 0;
  pool_.copies().begin_result = absl::UnavailableError("no stream");
  std::optional<PoolLease> lease = Read(1);
  ASSERT_TRUE(lease.has_value());
  EXPECT_EQ(lease->Ready().status(), absl::UnavailableError("no stream"));
  lease.reset();
  EXPECT_TRUE(lender().Settled());
  pool_.copies().begin_result = absl::OkStatus();
  pool_.copies().end_result = absl::InternalError("device lost");
  lease = Read(1);
  EXPECT_EQ(lease->Ready().status(), absl::InternalError("device lost"));
  EXPECT_EQ(lease->Ready().status(), absl::InternalError("device lost")) << "the error persists";
  lease.reset();
  pool_.copies().end_result = absl::OkStatus();
  lease = Read(1);
  EXPECT_TRUE(IsReady(*lease));
}

// The bytes in the pool are then undefined, and the lease cannot say so any more.
TEST_P(StagedPoolTest, AStoreThatFailsAfterItsLeaseWasReleasedIsReportedOnce) {
  pool_.copies().looks = 2;
  const auto land = [&] {
    return *lender().Acquire(PoolAccess::kLand, LeadingTokens(BlockId(3), 16), {});
  };
  PoolLease lease = land();
  lease.Store();
  lease = PoolLease();
  pool_.copies().end_result = absl::InternalError("device lost");
  EXPECT_TRUE(lender().TakeStoreError().ok()) << "the copy still runs";
  pool_.copies().LetEnd();
  EXPECT_TRUE(lender().Settled());
  EXPECT_EQ(lender().TakeStoreError(), absl::InternalError("device lost"));
  EXPECT_TRUE(lender().TakeStoreError().ok());

  pool_.copies().begin_result = absl::UnavailableError("no stream");
  lease = land();
  lease.Store();  // the copy does not even begin
  lease = PoolLease();
  EXPECT_EQ(lender().TakeStoreError(), absl::UnavailableError("no stream"));

  lease = land();
  lease.Store();
  EXPECT_FALSE(lease.Ready().ok()) << "its owner knows";
  lease = PoolLease();
  Read(1).reset();
  EXPECT_TRUE(lender().Settled());
  EXPECT_TRUE(lender().TakeStoreError().ok()) << "reads do not change the pool";
}

TEST_P(StagedPoolTest, ABufferHoldsTheLargestBlockOfAnyPeer) {
  LandingParts parts;
  for (int32_t i = 0; i < 8; ++i) {
    parts.push_back({.blocks = BlockId(2 * i), .payload_token = 16 * i, .tokens = 16});
  }
  PoolLease lease = *lender().Acquire(PoolAccess::kLand, parts, {});
  int64_t bytes = 0;
  for (const iovec& run : lease.bytes().Runs()) {
    bytes += static_cast<int64_t>(run.iov_len);
    std::memset(run.iov_base, 0x5A, run.iov_len);
  }
  EXPECT_EQ(bytes, StagedPool::BufferBytes(layout_));
  lease.Store();
  WaitFor(lease);
  for (int32_t i = 0; i < 8; ++i) {
    EXPECT_EQ(Copied(pool_.Bytes(BlockId(2 * i), 16)),
              std::vector<std::byte>(layout_.bytes_per_block(), std::byte{0x5A}));
  }
}

TEST(LeaseRequest, AsksForABufferThenWaitsForItsCopy) {
  const KvPoolLayout layout = MakeLayout({});
  TestPool pool(layout, PoolMemory::kDevice, {.read_buffers = 1, .land_buffers = 1});
  pool.copies().looks = 1;
  std::optional<PoolLease> held =
      pool.lender().Acquire(PoolAccess::kRead, LeadingTokens(BlockId(0), 16), {});
  while (!*held->Ready()) {
  }
  LeaseRequest request(PoolAccess::kRead, LeadingTokens(BlockId(1), 16), {});
  EXPECT_FALSE(*request.Ask(pool.lender()));
  EXPECT_EQ(request.waits_for(), PoolWait::kBuffer);
  held.reset();
  EXPECT_FALSE(*request.Ask(pool.lender()));
  EXPECT_EQ(request.waits_for(), PoolWait::kCopy);
  EXPECT_TRUE(*request.Ask(pool.lender()));
  const PoolLease lease = request.Take();
  EXPECT_EQ(lease.bytes().Checksums(), pool.Bytes(BlockId(1), 16).Checksums());
}

TEST(HostPool, LendsItsOwnBytesAtOnce) {
  const KvPoolLayout layout = MakeLayout({});
  TestPool pool(layout, PoolMemory::kHost);
  EXPECT_EQ(pool.lender().memory(), PoolMemory::kHost);
  EXPECT_TRUE(pool.lender().exported().has_value());
  PoolLease lease = *pool.lender().Acquire(PoolAccess::kLand, LeadingTokens(BlockId(5), 16), {});
  EXPECT_TRUE(*lease.Ready());
  EXPECT_EQ(lease.bytes().Part(PieceAt(2), 0).data(),
            pool.data() + layout.PieceOffset(1, false, 5));
  lease.Store();
  EXPECT_TRUE(*lease.Ready());
  EXPECT_TRUE(pool.lender().Settled());
}

// Tokens of two blocks of full attention; the second one also has a window block.
TEST_P(StagedPoolTest, ABufferHoldsTheBlocksOfEveryGroup) {
  const KvPoolLayout layout = MakeLayout({.layout = GetParam(), .groups = "wfv"});
  TestPool pool(layout, PoolMemory::kDevice, {.read_buffers = 2, .land_buffers = 2});
  for (size_t i = 0; i < pool.size(); ++i) pool.data()[i] = static_cast<std::byte>(i * 37 >> 3);
  GroupBlocks last(BlockId(9));
  last.Set(1, BlockId(4));
  const LandingParts parts = {
      {.blocks = BlockId(3), .block_token = 12, .payload_token = 0, .tokens = 4},
      {.blocks = last, .block_token = 0, .payload_token = 4, .tokens = 16}};
  const PieceBytes model(pool.data(), layout, parts, {});
  PoolLease read = *pool.lender().Acquire(PoolAccess::kRead, parts, {});
  WaitFor(read);
  EXPECT_EQ(read.bytes().Checksums(), model.Checksums());
  EXPECT_EQ(read.bytes().DroppedBytes(), model.DroppedBytes());
  PoolLease land = *pool.lender().Acquire(PoolAccess::kLand, parts, {});
  for (const iovec& run : land.bytes().Runs()) std::memset(run.iov_base, 0x5A, run.iov_len);
  std::vector<std::byte> expected(pool.data(), pool.data() + pool.size());
  for (const iovec& run : PieceBytes(expected.data(), layout, parts, {}).Runs()) {
    std::memset(run.iov_base, 0x5A, run.iov_len);
  }
  land.Store();
  WaitFor(land);
  EXPECT_EQ(std::memcmp(pool.data(), expected.data(), expected.size()), 0);
  // Layers of a group that is not selected need no copy.
  const int64_t begun = pool.copies().begun;
  PoolLease none = *pool.lender().Acquire(PoolAccess::kRead, LeadingTokens(BlockId(3), 16),
                                          {.first = 0, .count = 1});
  EXPECT_TRUE(IsReady(none));
  EXPECT_TRUE(none.bytes().Runs().empty());
  EXPECT_EQ(pool.copies().begun, begun);
}

// ---- shared read buffers ------------------------------------------------------------------------

// Shared read buffers as another process sees them.
class SharedReads : public StagedPoolTest {
 protected:
  static constexpr int32_t kSlots = 3;

  SharedReads() {
    for (size_t i = 0; i < shared_.size(); ++i) shared_.data()[i] = static_cast<std::byte>(i * 7);
    const PoolExport exported = *shared_.lender().exported();
    slots_ = exported.layout;
    view_ = *SharedPageView::Map(exported.file, static_cast<size_t>(slots_->pool_bytes()));
  }

  TestPool shared_{layout_, PoolMemory::kDevice, {.read_buffers = kSlots, .land_buffers = 1}, true};
  const KvPoolLayout* slots_ = nullptr;
  SharedPageView view_;
};

INSTANTIATE_TEST_SUITE_P(Layouts, SharedReads,
                         ::testing::Values(KvLayoutKind::kBlockMajor, KvLayoutKind::kLayerMajor));

TEST_P(SharedReads, AreBlocksOfABlockMajorFile) {
  EXPECT_EQ(slots_->kind(), KvLayoutKind::kBlockMajor);
  EXPECT_EQ(slots_->group(0).num_blocks(), kSlots);
  EXPECT_EQ(slots_->block_size(), layout_.block_size());
  const LayerRange layers{.first = 1, .count = 1};
  std::vector<PoolLease> leases;
  for (int32_t slot = 0; slot < kSlots; ++slot) {
    leases.push_back(
        *shared_.lender().Acquire(PoolAccess::kRead, LeadingTokens(BlockId(9 + slot), 11), layers));
    WaitFor(leases.back());
    const LandingPart& part = leases.back().bytes().parts().front();
    EXPECT_EQ(part.blocks, GroupBlocks(BlockId(slot)));
    for (const Piece piece : leases.back().bytes().pieces()) {
      const std::span<std::byte> want = shared_.Bytes(BlockId(9 + slot), 11, layers).Part(piece, 0);
      EXPECT_EQ(std::memcmp(view_.data() + slots_->PieceOffset(piece.layer, piece.plane, slot),
                            want.data(), want.size()),
                0);
    }
  }
  EXPECT_FALSE(
      shared_.lender().Acquire(PoolAccess::kRead, LeadingTokens(BlockId(0), 16), {}).has_value());
  PoolLease land = *shared_.lender().Acquire(PoolAccess::kLand, LeadingTokens(BlockId(0), 16), {});
  const auto* const at = static_cast<const std::byte*>(land.bytes().Runs()[0].iov_base);
  EXPECT_TRUE(at < view_.data() || at >= view_.data() + view_.size()) << "not shared";
}

// Against a naive model: which slots are lent, and what each of them must hold.
TEST_P(SharedReads, KeepTheirBytesWhileTheyAreLentWhateverHappens) {
  struct Loan {
    PoolLease lease;
    std::vector<std::byte> bytes;  // of the block when the copy began
  };
  std::mt19937 random(GetParam() == KvLayoutKind::kBlockMajor ? 5 : 6);
  SlowCopies& copies = shared_.copies();
  copies.looks = 0;
  std::vector<Loan> loans;
  size_t orphans = 0;  // copies of released leases that run
  int refused = 0;
  int lent = 0;
  for (int step = 0; step < 5000; ++step) {
    switch (random() % 6) {
      case 0:
      case 1: {
        const auto block = BlockId(static_cast<int32_t>(random() % 64));
        const auto tokens = static_cast<int32_t>(1 + random() % 16);
        std::optional<PoolLease> lease =
            shared_.lender().Acquire(PoolAccess::kRead, LeadingTokens(block, tokens), {});
        if (!copies.held) orphans = 0;
        ASSERT_EQ(lease.has_value(), loans.size() + orphans < size_t{kSlots}) << step;
        refused += lease ? 0 : 1;
        lent += lease ? 1 : 0;
        if (lease) loans.push_back({*std::move(lease), Copied(shared_.Bytes(block, tokens))});
        break;
      }
      case 2:
        if (loans.empty()) break;
        {
          const size_t at = random() % loans.size();
          orphans += *loans[at].lease.Ready() ? 0 : 1;
          loans.erase(loans.begin() + static_cast<ptrdiff_t>(at));
        }
        break;
      case 3:
        copies.held = !copies.held;
        break;
      case 4:  // the engine writes to a block that is not being copied
        if (copies.under_way() > 0) break;
        shared_.data()[random() % shared_.size()] = static_cast<std::byte>(random());
        break;
      default:
        break;
    }
    for (Loan& loan : loans) {
      const absl::StatusOr<bool> ready = loan.lease.Ready();
      ASSERT_TRUE(ready.ok());
      if (*ready) {
        ASSERT_EQ(Copied(loan.lease.bytes()), loan.bytes) << step;
      }
    }
    ASSERT_EQ(shared_.lender().Settled(), !copies.held || orphans == 0);
    if (!copies.held) orphans = 0;
  }
  copies.held = false;
  EXPECT_GT(refused, 100);
  EXPECT_GT(lent, 300);
}

TEST_P(SharedReads, OfSeveralGroupsHaveABlockOfEachGroupInASlot) {
  const KvPoolLayout layout = MakeLayout({.layout = GetParam(), .groups = "wfv"});
  TestPool pool(layout, PoolMemory::kDevice, {.read_buffers = 2, .land_buffers = 1}, true);
  for (size_t i = 0; i < pool.size(); ++i) pool.data()[i] = static_cast<std::byte>(i * 37 >> 3);
  GroupBlocks blocks(BlockId(9));
  blocks.Set(2, BlockId(4));
  const PoolLease first = *pool.lender().Acquire(PoolAccess::kRead, LeadingTokens(blocks, 16), {});
  PoolLease lease = *pool.lender().Acquire(PoolAccess::kRead, LeadingTokens(blocks, 16), {});
  WaitFor(lease);
  GroupBlocks slot(BlockId(1));
  slot.Set(2, BlockId(1));
  EXPECT_EQ(lease.bytes().parts().front().blocks, slot);
  EXPECT_EQ(lease.bytes().Checksums(), pool.Bytes(blocks, 16).Checksums());
}

}  // namespace
}  // namespace baton
