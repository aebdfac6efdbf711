#include "engine/chunk_mover_thread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "kvtransfer/pool/host_pool.h"
#include "tests/kvtransfer/transfer_test_worker.h"

namespace baton {
namespace {

// A host pool that lets the test stop the mover's thread before a lease.
class GatedPool final : public TransferPool {
 public:
  GatedPool(std::byte* base, const KvPoolLayout& layout)
      : TransferPool(layout), host_(base, TransferPool::layout()) {}

  PoolMemory memory() const override { return PoolMemory::kHost; }
  std::optional<PoolLease> Acquire(PoolAccess access, LandingParts parts,
                                   LayerRange layers) override {
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_ > 0; });
    --open_;
    if (paced_ != nullptr) {
      ++*paced_;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    order.push_back({access, parts[0].blocks[0]});
    return host_.Acquire(access, std::move(parts), layers);
  }
  bool Settled() override { return true; }
  std::optional<PoolExport> exported() const override { return std::nullopt; }
  std::byte* AddressForCopyEngine() const override { return nullptr; }

  // Waits until the thread asks for lease number `count`.
  void WaitForLease(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waiting_ >= count; });
  }
  void Open(int leases) {
    const std::lock_guard lock(mutex_);
    open_ += leases;
    changed_.notify_all();
  }
  // Opens for all leases. Each takes a millisecond and is counted in `leases`.
  void Pace(std::atomic<int>* leases) {
    const std::lock_guard lock(mutex_);
    paced_ = leases;
    open_ = 1 << 20;
    changed_.notify_all();
  }

  std::vector<std::pair<PoolAccess, BlockId>> order;  // of leases; read it when no job runs

 private:
  HostPool host_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int waiting_ = 0;
  int open_ = 0;
  std::atomic<int>* paced_ = nullptr;
};

class ChunkMoverThreadTest : public testing::TestWithParam<bool> {
 protected:
  static constexpr int kMany = 1 << 20;

  ChunkMoverThreadTest() {
    for (size_t i = 0; i < memory_.size(); ++i) {
      memory_[i] = static_cast<std::byte>(i % 2 == 0 ? i * 7919 >> 5 : 0x3C);
    }
    auto pool = std::make_unique<GatedPool>(memory_.data(), layout_);
    pool_ = pool.get();
    mover_.emplace(std::move(pool), GetParam(), [this] {
      const std::lock_guard lock(mutex_);
      ++wakes_;
      changed_.notify_all();
    });
  }
  // Waits until `count` more jobs have ended, and returns all that did.
  std::map<uint64_t, ChunkMover::Done> WaitFor(size_t count) {
    std::map<uint64_t, ChunkMover::Done> ended;
    while (true) {
      for (ChunkMover::Done& done : mover_->Poll()) ended.emplace(done.job, std::move(done));
      if (ended.size() >= count) return ended;
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return std::exchange(wakes_, 0) > 0; });
    }
  }
  std::vector<std::byte> Tokens(int32_t block, int32_t tokens) {
    std::vector<std::byte> bytes;
    const PieceBytes pieces(memory_.data(), layout_, LeadingTokens(BlockId(block), tokens), {});
    for (const iovec& run : pieces.Runs()) {
      const auto* const at = static_cast<const std::byte*>(run.iov_base);
      bytes.insert(bytes.end(), at, at + run.iov_len);
    }
    return bytes;
  }

  const KvPoolLayout layout_ = MakeLayout({});  // blocks of 16 tokens
  std::vector<std::byte> memory_{static_cast<size_t>(layout_.pool_bytes())};
  GatedPool* pool_ = nullptr;
  std::mutex mutex_;
  std::condition_variable changed_;
  int wakes_ = 0;
  std::optional<ChunkMoverThread> mover_;
};

INSTANTIATE_TEST_SUITE_P(Compressed, ChunkMoverThreadTest, testing::Bool());

const std::vector<BlockId> kThree = {BlockId(2), BlockId(5), BlockId(1)};

TEST_P(ChunkMoverThreadTest, AChunkComesBackIntoOtherBlocks) {
  pool_->Open(kMany);
  mover_->Pack(1, kThree, 40);
  auto ended = WaitFor(1);
  ASSERT_TRUE(ended.at(1).status.ok());
  const std::shared_ptr<const PackedKv> kv = ended.at(1).kv;
  ASSERT_EQ(kv->blocks.size(), 3u);
  EXPECT_EQ(kv->blocks[0].compressed, GetParam());
  const std::vector<std::byte> expected[] = {Tokens(2, 16), Tokens(5, 16), Tokens(1, 8)};
  mover_->Unpack(2, kv, {BlockId(7), BlockId(0), BlockId(3)}, 40);
  ended = WaitFor(1);
  EXPECT_TRUE(ended.at(2).status.ok()) << ended.at(2).status;
  EXPECT_EQ(Tokens(7, 16), expected[0]);
  EXPECT_EQ(Tokens(0, 16), expected[1]);
  EXPECT_EQ(Tokens(3, 8), expected[2]);
}

TEST_P(ChunkMoverThreadTest, ADamagedChunkEndsWithDataLoss) {
  pool_->Open(kMany);
  mover_->Pack(1, kThree, 48);
  PackedKv damaged = *WaitFor(1).at(1).kv;
  damaged.blocks[2].bytes[damaged.blocks[2].bytes.size() / 2] ^= std::byte{1};
  mover_->Unpack(2, std::make_shared<const PackedKv>(std::move(damaged)),
                 {BlockId(7), BlockId(0), BlockId(3)}, 48);
  EXPECT_EQ(WaitFor(1).at(2).status.code(), absl::StatusCode::kDataLoss);
}

TEST_P(ChunkMoverThreadTest, AWakeDoesNotWaitForTheRestOfAChunkThatFallsAsleep) {
  pool_->Open(kMany);
  mover_->Pack(1, kThree, 48);
  const std::shared_ptr<const PackedKv> kv = WaitFor(1).at(1).kv;
  pool_->Open(-kMany + 3);  // closed: three leases were used
  pool_->order.clear();
  mover_->Pack(2, kThree, 48);
  mover_->Pack(3, {BlockId(6)}, 16);
  pool_->WaitForLease(4);  // the first block of job 2
  mover_->Unpack(4, kv, {BlockId(7), BlockId(0), BlockId(3)}, 48);
  pool_->Open(kMany);
  const auto ended = WaitFor(3);
  std::vector<BlockId> blocks;
  for (const auto& [access, block] : pool_->order) blocks.push_back(block);
  EXPECT_THAT(blocks, testing::ElementsAre(BlockId(2), BlockId(7), BlockId(0), BlockId(3),
                                           BlockId(5), BlockId(1), BlockId(6)));
  for (const auto& [job, done] : ended) EXPECT_TRUE(done.status.ok()) << job;
}

TEST_P(ChunkMoverThreadTest, ACancelledJobEndsAfterItsBlock) {
  mover_->Pack(1, kThree, 48);
  mover_->Pack(2, kThree, 48);
  mover_->Pack(3, {BlockId(6)}, 16);
  pool_->WaitForLease(1);
  mover_->Cancel(1);
  mover_->Cancel(2);
  mover_->Cancel(77);
  pool_->Open(kMany);
  const auto ended = WaitFor(3);
  EXPECT_EQ(ended.at(1).status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(ended.at(2).status.code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(ended.at(3).status.ok());
  EXPECT_EQ(pool_->order.size(), 2u);
}

TEST_P(ChunkMoverThreadTest, DestructionDropsTheJobs) {
  constexpr int kJobs = 1000;
  for (int job = 1; job <= kJobs; ++job) mover_->Pack(static_cast<uint64_t>(job), kThree, 48);
  pool_->WaitForLease(1);
  std::atomic<int> leases = 0;
  pool_->Pace(&leases);
  mover_.reset();
  EXPECT_LT(leases, kJobs * static_cast<int>(kThree.size())) << "every job ran";
}

}  // namespace
}  // namespace baton
