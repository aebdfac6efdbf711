// The tree against a literal model: a map from each cached prefix to its last block.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>

#include "cache/radix_tree.h"

namespace baton {
namespace {

// The namespace, then units of whole blocks.
using Path = std::vector<CacheUnit>;

class RadixModel {
 public:
  explicit RadixModel(int32_t block_size) : block_size_(block_size) {}

  Path Prefix(const Path& path, int32_t blocks) const {
    return Path(path.begin(), path.begin() + 1 + blocks * block_size_);
  }
  int32_t Blocks(const Path& path) const { return (path.size() - 1) / block_size_; }
  int32_t Matched(const Path& path) const {
    int32_t blocks = 0;
    while (blocks < Blocks(path) && entries_.contains(Prefix(path, blocks + 1))) ++blocks;
    return blocks;
  }
  BlockId At(const Path& prefix) const { return entries_.at(prefix).block; }
  void Add(const Path& prefix, BlockId block) { entries_[prefix] = {.block = block, .used = 0}; }
  void Use(const Path& path) {
    ++tick_;
    for (int32_t i = 1; i <= Blocks(path); ++i) entries_.at(Prefix(path, i)).used = tick_;
  }
  // The block to go next, or none: the least recently used one that nothing continues and no lock
  // covers.
  std::optional<Path> Victim(const std::vector<Path>& locked) const {
    std::optional<Path> victim;
    for (auto it = entries_.begin(); it != entries_.end(); ++it) {
      const auto next = std::next(it);
      if (next != entries_.end() && Begins(next->first, it->first)) continue;
      if (Covered(it->first, locked)) continue;
      if (!victim || it->second.used < entries_.at(*victim).used) victim = it->first;
    }
    return victim;
  }
  void Remove(const Path& prefix) { entries_.erase(prefix); }
  int32_t CountCovered(const std::vector<Path>& locked) const {
    return std::count_if(entries_.begin(), entries_.end(),
                         [&](const auto& entry) { return Covered(entry.first, locked); });
  }
  int32_t size() const { return entries_.size(); }

 private:
  struct Entry {
    BlockId block;
    uint64_t used;
  };
  static bool Begins(const Path& path, const Path& prefix) {
    return path.size() >= prefix.size() && std::equal(prefix.begin(), prefix.end(), path.begin());
  }
  static bool Covered(const Path& prefix, const std::vector<Path>& locked) {
    return std::any_of(locked.begin(), locked.end(),
                       [&](const Path& path) { return Begins(path, prefix); });
  }
  int32_t block_size_;
  std::map<Path, Entry> entries_;
  uint64_t tick_ = 0;
};

class RadixDriver {
 public:
  RadixDriver(uint32_t seed, int32_t block_size, int32_t pool)
      : random_(seed),
        block_size_(block_size),
        allocator_(pool),
        tree_(block_size, &allocator_, seed % 2 == 0 ? 0 : SIZE_MAX),  // every hash equal, or none
        model_(block_size) {}

  void Step() {
    switch (random_() % 6) {
      case 0:
      case 1:
        Match();
        break;
      case 2:
      case 3:
        Insert();
        break;
      case 4:
        Unlock();
        break;
      case 5:
        Evict(random_() % 4);
        break;
    }
    Check();
  }
  void UnlockAll() {
    while (!locks_.empty()) Unlock();
  }

 private:
  Path RandomPath(Path path, int32_t most_blocks) {
    const int32_t units = (random_() % (most_blocks + 1)) * block_size_;
    for (int32_t i = 0; i < units; ++i) path.push_back(random_() % 8 == 0 ? 1 : 0);
    return path;
  }
  static std::span<const CacheUnit> Units(const Path& path) { return std::span(path).subspan(1); }

  void Match() {
    if (locks_.size() == 6) return Unlock();
    Path path = RandomPath({1 + random_() % 2}, 10);
    if (random_() % 2 == 0) path.push_back(0);  // a partial block never matters
    const int32_t most = random_() % 12, least = random_() % 3;
    int32_t expected = std::min(most, model_.Matched(path));
    if (expected < least) expected = 0;
    RadixMatch match = tree_.Match(CacheNamespace(path[0]), Units(path), most, least);
    ASSERT_EQ(match.blocks.size(), expected);
    path = model_.Prefix(path, expected);
    for (int32_t i = 0; i < expected; ++i) {
      ASSERT_EQ(match.blocks[i], model_.At(model_.Prefix(path, i + 1)));
    }
    locks_.push_back(std::move(match.lock));
    paths_.push_back(path);
  }

  void Insert() {
    if (locks_.empty()) return;
    const size_t which = random_() % locks_.size();
    const Path before = paths_[which];
    const Path path = RandomPath(before, 5);
    const int32_t from = model_.Blocks(before), count = model_.Blocks(path) - from;
    std::vector<BlockId> blocks;
    if (allocator_.free_count() < count) Evict(count - allocator_.free_count());
    if (!allocator_.Allocate(count, BlockHolder::kSequence, blocks)) return;
    const std::vector<BlockId> own = blocks;
    const int32_t present = model_.Matched(path) - from;
    ASSERT_EQ(tree_.Insert(locks_[which], Units(path).subspan(size_t(from) * block_size_), blocks),
              present);
    for (int32_t i = 0; i < count; ++i) {
      const Path prefix = model_.Prefix(path, from + i + 1);
      if (i >= present) model_.Add(prefix, own[i]);
      ASSERT_EQ(blocks[i], model_.At(prefix));
    }
    allocator_.ReleaseHolds(own, BlockHolder::kSequence);
    paths_[which] = path;
  }

  void Unlock() {
    if (locks_.empty()) return;
    const size_t which = random_() % locks_.size();
    model_.Use(paths_[which]);
    locks_.erase(locks_.begin() + which);
    paths_.erase(paths_.begin() + which);
  }

  void Evict(int32_t count) {
    std::vector<BlockId> expected;
    while (static_cast<int32_t>(expected.size()) < count) {
      const std::optional<Path> victim = model_.Victim(paths_);
      if (!victim) break;
      expected.push_back(model_.At(*victim));
      model_.Remove(*victim);
    }
    ASSERT_EQ(tree_.Evict(count), static_cast<int32_t>(expected.size()));
    for (const BlockId block : expected) {
      ASSERT_TRUE(allocator_.is_free(block)) << "another block than the model's went";
    }
  }

  void Check() {
    ASSERT_TRUE(tree_.CheckInvariants().ok()) << tree_.CheckInvariants();
    const int32_t covered = model_.CountCovered(paths_);
    ASSERT_EQ(tree_.protected_blocks(), covered);
    ASSERT_EQ(tree_.evictable_blocks(), model_.size() - covered);
    ASSERT_EQ(allocator_.Account().cached, model_.size());
  }

  std::mt19937 random_;
  const int32_t block_size_;
  BlockAllocator allocator_;
  RadixTree tree_;
  RadixModel model_;
  std::vector<RadixLock> locks_;  // with paths_, in step
  std::vector<Path> paths_;
};

TEST(RadixTreeCheck, AgreesWithALiteralModelOverRandomOperations) {
  for (uint32_t seed = 1; seed <= 24; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    RadixDriver driver(seed, 1 << (seed % 3), 20 + 10 * (seed % 4));
    for (int step = 0; step < 8'000; ++step) {
      driver.Step();
      ASSERT_FALSE(HasFatalFailure()) << "step " << step;
    }
    driver.UnlockAll();
  }
}

}  // namespace
}  // namespace baton
