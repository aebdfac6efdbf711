// Resizes that overlap each other, and sequences that hold blocks meanwhile: every block that may
// be used has memory at every moment.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <utility>
#include <vector>

#include "engine/pool_resizer.h"
#include "tests/engine/worker_bench.h"

namespace baton {
namespace {

constexpr int32_t kFirst = 16;
constexpr int32_t kMost = 48;

// Remembers which blocks have memory.
class TrackedPool final : public ResizablePool {
 public:
  TrackedPool() : populated_(kMost, false) { std::fill_n(populated_.begin(), kFirst, true); }

  bool resizable() const override { return true; }
  int32_t max_blocks(int32_t) const override { return kMost; }
  BlockCounts BlocksFor(int32_t full) const override { return BlockCounts(full); }
  absl::Status Populate(const BlockCounts& blocks) const override {
    for (int32_t block = 0; block < blocks[0]; ++block) {
      if (block >= full_at) return absl::ResourceExhaustedError("no memory");
      if (populated_[block]) continue;
      populated_[block] = true;
      ++newly_populated;
      if (meanwhile) meanwhile();
    }
    return absl::OkStatus();
  }
  void Discard(int32_t, int32_t begin, int32_t end) override {
    for (int32_t block = begin; block < end; ++block) populated_[block] = false;
  }
  bool populated(int32_t block) const { return populated_[block]; }
  int32_t CountPopulated() const {
    return static_cast<int32_t>(std::count(populated_.begin(), populated_.end(), true));
  }

  mutable int32_t newly_populated = 0;
  int32_t full_at = kMost;          // no block from here on gets memory
  std::function<void()> meanwhile;  // called while blocks are populated

 private:
  mutable std::vector<bool> populated_;
};

class PoolResizerOverlap : public testing::Test {
 protected:
  PoolResizerOverlap() : bench_({.num_blocks = kFirst, .max_blocks = kMost, .block_size = 4}) {}

  void ExpectMemoryOfAllUsableBlocks() {
    std::vector<bool> usable(kMost, true);
    for (const BlockRange& retired : bench_.cache.RetiredBlocks()) {
      for (int32_t block = retired.begin; block < retired.end; ++block) usable[block] = false;
    }
    for (int32_t block = 0; block < kMost; ++block) {
      ASSERT_TRUE(!usable[block] || pool_.populated(block)) << "block " << block;
    }
  }
  absl::StatusOr<PoolSize> Resize(int32_t blocks) {
    absl::StatusOr<PoolSize> size = resizer_.Resize(*bench_.core, blocks);
    ExpectMemoryOfAllUsableBlocks();
    return size;
  }
  void Turn() {
    bench_.Turn();
    resizer_.GiveBackRetired();
    ExpectMemoryOfAllUsableBlocks();
  }

  WorkerBench bench_;
  TrackedPool pool_;
  PoolResizer resizer_{&pool_, &bench_.cache};
};

TEST_F(PoolResizerOverlap, AShrinkBetweenTheTwoPartsOfAGrowthTakesNoBlockAway) {
  ASSERT_TRUE(resizer_.Prepare(40).ok());
  ASSERT_TRUE(Resize(4).ok());
  EXPECT_EQ(pool_.CountPopulated(), 40) << "the growth is still under way";
  pool_.newly_populated = 0;
  ASSERT_TRUE(Resize(40).ok());
  EXPECT_EQ(pool_.newly_populated, 0) << "the engine thread must not populate for seconds";
  ASSERT_TRUE(Resize(4).ok());
  EXPECT_EQ(pool_.CountPopulated(), 4);
}

TEST_F(PoolResizerOverlap, AResizeWithoutPreparationPopulatesItself) {
  ASSERT_TRUE(Resize(30).ok());
  EXPECT_EQ(pool_.CountPopulated(), 30);
}

TEST_F(PoolResizerOverlap, AFailedGrowthReturnsOnlyMemoryThatNothingUses) {
  const auto request = bench_.Generate(std::vector<TokenId>(50, 'a'), 8);
  Turn();
  ASSERT_TRUE(Resize(4).ok());
  ASSERT_GT(bench_.cache.retiring_blocks(), 0) << "the sequence holds blocks behind the end";
  const int32_t held = pool_.CountPopulated();
  pool_.full_at = 30;
  EXPECT_EQ(resizer_.Prepare(40).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(pool_.CountPopulated(), 30);
  resizer_.Abandon(40);
  ExpectMemoryOfAllUsableBlocks();
  EXPECT_EQ(pool_.CountPopulated(), held);
  EXPECT_EQ(Resize(40).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(bench_.cache.num_blocks(), 4);
  EXPECT_EQ(pool_.CountPopulated(), held);
  ASSERT_TRUE(Resize(20).ok());
  bench_.Run();
  EXPECT_TRUE(request->finish.has_value());
}

TEST_F(PoolResizerOverlap, SizesOutsideTheRangeChangeNothing) {
  for (const int32_t blocks : {-1, 0, kMost + 1}) {
    EXPECT_TRUE(resizer_.Prepare(blocks).ok());
    EXPECT_EQ(Resize(blocks).status().code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(pool_.CountPopulated(), kFirst);
}

// Several resizes of different callers are under way at a time. While one of them populates memory,
// the engine thread runs steps and ends the others.
TEST_F(PoolResizerOverlap, RandomResizesAndSequences) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const auto size = [&] { return static_cast<int32_t>(4 + random() % (kMost - 3)); };
    std::vector<std::pair<int32_t, bool>> prepared;  // target, whether its preparation succeeded
    const auto end_one = [&] {
      if (prepared.empty()) return;
      const size_t at = random() % prepared.size();
      const auto [target, ok] = prepared[at];
      prepared.erase(prepared.begin() + static_cast<std::ptrdiff_t>(at));
      pool_.newly_populated = 0;
      if (!ok) {
        resizer_.Abandon(target);
      } else if (const auto resized = Resize(target); resized.ok()) {
        EXPECT_EQ(pool_.newly_populated, 0);
      }
      ExpectMemoryOfAllUsableBlocks();
    };
    const auto engine_work = [&] {
      switch (random() % 4) {
        case 0:
          return end_one();
        case 1:
          bench_.Generate(
              std::vector<TokenId>(1 + random() % 12, static_cast<TokenId>('a' + random() % 20)),
              static_cast<int32_t>(1 + random() % 4));
          return;
        default:
          return Turn();
      }
    };
    for (int step = 0; step < 60 && !HasFatalFailure(); ++step) {
      if (random() % 5 != 0) {
        engine_work();
        continue;
      }
      const int32_t target = size();
      pool_.full_at = random() % 4 == 0 ? size() : kMost;
      pool_.meanwhile = [&, inside = false]() mutable {
        if (inside || random() % 3 != 0) return;
        inside = true;
        engine_work();
        inside = false;
      };
      const bool ok = resizer_.Prepare(target).ok();
      pool_.meanwhile = nullptr;
      pool_.full_at = kMost;
      prepared.emplace_back(target, ok);
    }
    while (!prepared.empty()) end_one();
    bench_.Run();
    ASSERT_TRUE(Resize(kFirst).ok());
    EXPECT_EQ(bench_.cache.retiring_blocks(), 0);
    EXPECT_EQ(pool_.CountPopulated(), kFirst) << "no memory is kept";
  }
  bench_.ExpectAllBlocksHome();
}

}  // namespace
}  // namespace baton
