#include "cache/published_runs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <vector>

#include "tests/cache/literal_event_model.h"

namespace baton {
namespace {

using ::testing::ElementsAreArray;

constexpr CacheNamespace kSpace{1};

// A path of blocks 0, 1, ... with units 0, 1, ..., published from its beginning.
class Path {
 public:
  Path(int32_t block_size, int32_t blocks)
      : units_(block_size, blocks),
        all_(size_t(block_size) * blocks),
        runs_(block_size, blocks, &units_, &events_) {
    std::iota(all_.begin(), all_.end(), 0);
    std::vector<BlockId> ids;
    for (int32_t i = 0; i < blocks; ++i) ids.push_back(BlockId(i));
    units_.Write(ids, all_);
    const int32_t length = runs_.blocks_per_run();
    for (int32_t i = 0; i < blocks; ++i) {
      if (!runs_.EndsRun(i)) continue;
      runs_.Stored(std::span(ids).subspan(i + 1 - length, length), Before(i),
                   NamespaceHash(kSpace));
    }
  }
  BlockId Before(int32_t at) const {
    return at < runs_.blocks_per_run() ? kNoBlock : BlockId(at - runs_.blocks_per_run());
  }
  std::set<Hash128> Held() {
    for (const std::string& batch : events_.Take()) ApplyEncoded(batch, held_);
    return held_;
  }
  PublishedRuns& runs() { return runs_; }
  std::vector<Hash128> Expected() const { return ChainedHashes(kSpace, all_); }

 private:
  BlockUnits units_;
  std::vector<CacheUnit> all_;
  KvEventBatcher events_;
  PublishedRuns runs_;
  std::set<Hash128> held_;
};

TEST(PublishedRuns, EveryRunIsPublishedOnceForAnyBlockSize) {
  for (const int32_t block_size : {1, 4, 16, 32, 128}) {
    Path path(block_size, 256 / block_size);
    const std::vector<Hash128> expected = path.Expected();
    EXPECT_EQ(expected.size(), 16u);
    EXPECT_EQ(path.Held(), std::set<Hash128>(expected.begin(), expected.end())) << block_size;
    KvEventBatcher snapshot;
    std::vector<Hash128> repeated;
    for (int32_t i = 0; i < 256 / block_size; ++i) {
      if (path.runs().EndsRun(i)) path.runs().Repeat(BlockId(i), path.Before(i), snapshot);
    }
    for (const std::string& batch : snapshot.Take()) {
      const auto events = DecodeKvEvents(batch);
      ASSERT_TRUE(events.ok());
      for (const KvEvent& event : *events) {
        repeated.insert(repeated.end(), event.hashes.begin(), event.hashes.end());
      }
    }
    EXPECT_THAT(repeated, ElementsAreArray(expected)) << block_size;
    for (int32_t i = 256 / block_size; i-- > 0;) {
      if (path.runs().EndsRun(i)) path.runs().Removed(BlockId(i));
    }
    EXPECT_TRUE(path.Held().empty()) << block_size;
  }
}

TEST(PublishedRuns, ARunInsideABlockIsRemovedWithItsLastHolder) {
  BlockUnits units(32, 2);
  std::vector<CacheUnit> all(64, 7);
  all[63] = 8;  // both blocks begin with the same run
  const std::vector<BlockId> ids = {BlockId(0), BlockId(1)};
  units.Write(ids, all);
  KvEventBatcher events;
  PublishedRuns runs(32, 2, &units, &events);
  for (size_t i = 0; i < 2; ++i) {
    runs.Stored(std::span(ids).subspan(i, 1), kNoBlock, NamespaceHash(kSpace));
  }
  std::set<Hash128> held;
  const auto take = [&] {
    for (const std::string& batch : events.Take()) ApplyEncoded(batch, held);
    return held.size();
  };
  EXPECT_EQ(take(), 3u);
  runs.Removed(BlockId(0));
  EXPECT_EQ(take(), 2u) << "the other block still has the shared run";
  runs.Removed(BlockId(1));
  EXPECT_EQ(take(), 0u);
}

TEST(PublishedRuns, AfterClearedNothingIsHeld) {
  Path path(32, 4);
  path.runs().Cleared();
  EXPECT_TRUE(path.Held().empty());
}

}  // namespace
}  // namespace baton
