// The tree and its windows against a reference model: a map from each cached prefix to its blocks
// in every group, and a count of holds for every window block.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <tuple>

#include "cache/radix_tree.h"
#include "cache/window_cache.h"
#include "tests/common/random_operations.h"

namespace baton {
namespace {

// A path: the namespace, then units of whole blocks.
using Path = std::vector<CacheUnit>;

struct WindowUse {
  uint64_t created = 0, last_used = 0, uses = 0;
  int32_t priority = INT32_MIN;
};

bool GoesBefore(EvictionPolicy policy, const WindowUse& a, const WindowUse& b) {
  switch (policy) {
    case EvictionPolicy::kLru:
      return a.last_used < b.last_used;
    case EvictionPolicy::kLfu:
      return std::tie(a.uses, a.last_used) < std::tie(b.uses, b.last_used);
    case EvictionPolicy::kFifo:
      return a.created < b.created;
    case EvictionPolicy::kMru:
      return a.last_used > b.last_used;
    case EvictionPolicy::kFilo:
      return a.created > b.created;
    case EvictionPolicy::kPriority:
      return std::tie(a.priority, a.last_used) < std::tie(b.priority, b.last_used);
    case EvictionPolicy::kSlru:
      if ((a.uses > 1) != (b.uses > 1)) return b.uses > 1;
      return a.last_used < b.last_used;
  }
  return false;
}

class WindowDriver {
 public:
  WindowDriver(uint32_t seed, EvictionPolicy policy, int32_t block_size)
      : random_(seed),
        policy_(policy),
        block_size_(block_size),
        allocator_(60),
        tree_(block_size, &allocator_, policy, seed) {
    const int32_t count = 1 + static_cast<int32_t>(seed % 2);
    for (int32_t i = 0; i < count; ++i) {
      Window& window = windows_.emplace_back();
      window.slots = 1 + random_() % (5 * block_size);
      window.cache = std::make_unique<WindowCache>(
          WindowPoolOptions{.window = window.slots, .num_blocks = 30, .max_blocks = 30}, block_size,
          allocator_.capacity(), policy);
      tree_.AddWindow(window.cache.get());
    }
  }
  ~WindowDriver() {
    while (!locks_.empty()) Unlock();
    for (Window& window : windows_) {
      while (!window.transfers.empty()) EndTransfer(window);
    }
  }

  void Step() {
    const uint32_t kind = random_() % 64;
    if (kind < 16) {
      Match();
    } else if (kind < 30) {
      Insert();
    } else if (kind < 36) {
      Slide();
    } else if (kind < 43) {
      Unlock();
    } else if (kind < 49) {
      EvictFull(random_() % 4);
    } else if (kind < 56) {
      EvictWindow(AnyWindow(), random_() % 4);
    } else if (kind < 58) {
      Window& window = AnyWindow();
      random_() % 2 ? StartTransfer(window) : EndTransfer(window);
    } else if (kind < 60) {
      Forget([&] { return tree_.Remove(CacheNamespace(1), Units(AnyPath())); });
    } else if (kind == 60) {
      const BlockId first(static_cast<int32_t>(random_() % 60));
      Forget([&] { return tree_.EvictFrom(first); });
    } else if (kind == 61) {
      Resize(AnyWindow());
    } else if (kind == 62 && random_() % 4 == 0) {
      Clear();
    }
    Check();
  }

  // Matches that a tombstone shortened.
  int64_t torn() const { return torn_; }
  // Tombstones that got a window block again.
  int64_t healed() const { return healed_; }

 private:
  struct Window {
    int32_t slots = 0;
    std::unique_ptr<WindowCache> cache;
    std::map<BlockId, int32_t> sequence_holds, transfer_holds;
    std::vector<BlockId> transfers;
    std::map<BlockId, WindowUse> uses;  // of cached blocks
    uint64_t tick = 0;
    int32_t whole(int32_t block_size) const { return (slots - 1 + block_size - 1) / block_size; }
  };
  struct Entry {
    BlockId full;
    std::vector<BlockId> windows;  // kNoBlock for a tombstone
  };
  struct Lock {
    RadixLock handle;
    Path path;
    int32_t priority;
    bool cut_off = false;
    std::vector<std::vector<BlockId>> held;  // by window
  };

  Window& AnyWindow() { return windows_[random_() % windows_.size()]; }
  Path AnyPath() {
    Path path = {1 + random_() % 2};
    const int32_t units = (random_() % 11) * block_size_;
    for (int32_t i = 0; i < units; ++i) path.push_back(random_() % 8 == 0 ? 1 : 0);
    return path;
  }
  static std::span<const CacheUnit> Units(const Path& path) { return std::span(path).subspan(1); }
  Path Prefix(const Path& path, int32_t blocks) const {
    return Path(path.begin(), path.begin() + 1 + blocks * block_size_);
  }
  int32_t Blocks(const Path& path) const { return (path.size() - 1) / block_size_; }
  int32_t Walked(const Path& path) const {
    int32_t blocks = 0;
    while (blocks < Blocks(path) && entries_.contains(Prefix(path, blocks + 1))) ++blocks;
    return blocks;
  }
  // The literal rule: every window block that a token at the boundary sees is present.
  bool IsWhole(const Path& path, int32_t boundary) const {
    for (size_t w = 0; w < windows_.size(); ++w) {
      const int32_t first_slot = std::max(0, boundary * block_size_ - windows_[w].slots + 1);
      for (int32_t slot = first_slot; slot < boundary * block_size_; ++slot) {
        const Entry& entry = entries_.at(Prefix(path, slot / block_size_ + 1));
        if (entry.windows[w] == kNoBlock) return false;
      }
    }
    return true;
  }
  int32_t Matched(const Path& path, int32_t most) const {
    int32_t boundary = std::min(most, Walked(path));
    while (!IsWhole(path, boundary)) --boundary;
    return boundary;
  }
  bool Covered(const Path& prefix) const {
    return std::any_of(locks_.begin(), locks_.end(), [&](const Lock& lock) {
      return !lock.cut_off && lock.path.size() >= prefix.size() &&
             std::equal(prefix.begin(), prefix.end(), lock.path.begin());
    });
  }

  void Hold(Window& window, BlockId block, int32_t priority) {
    window.cache->AddHold(block, BlockHolder::kSequence, priority);
    ++window.sequence_holds[block];
    if (const auto it = window.uses.find(block); it != window.uses.end()) {
      ++it->second.uses;
      it->second.priority = std::max(it->second.priority, priority);
    }
  }
  static bool IsHeld(const Window& window, BlockId block) {
    const auto count = [&](const auto& holds) {
      const auto it = holds.find(block);
      return it == holds.end() ? 0 : it->second;
    };
    return count(window.sequence_holds) + count(window.transfer_holds) > 0;
  }
  void LetGo(Window& window, BlockId block, BlockHolder holder) {
    window.cache->ReleaseHold(block, holder);
    --(holder == BlockHolder::kSequence ? window.sequence_holds : window.transfer_holds)[block];
    const auto it = window.uses.find(block);
    if (it != window.uses.end() && !IsHeld(window, block)) it->second.last_used = ++window.tick;
  }

  void Match() {
    if (locks_.size() == 6) return Unlock();
    const Path whole = AnyPath();
    const int32_t most = random_() % 12, priority = random_() % 5;
    const int32_t expected = Matched(whole, most);
    torn_ += expected < std::min(most, Walked(whole)) ? 1 : 0;
    const Path path = Prefix(whole, expected);
    const RadixPeek peek = tree_.Peek(CacheNamespace(whole[0]), Units(whole), most);
    ASSERT_EQ(peek.blocks, expected);
    int32_t evictable = 0;
    for (int32_t i = 1; i <= expected; ++i) evictable += Covered(Prefix(path, i)) ? 0 : 1;
    ASSERT_EQ(peek.evictable_blocks, evictable);
    RadixMatch match = tree_.Match(CacheNamespace(whole[0]), Units(whole), most, 0, priority);
    ASSERT_EQ(static_cast<int32_t>(match.blocks.size()), expected);
    Lock lock{.handle = std::move(match.lock), .path = path, .priority = priority, .held = {}};
    lock.held.resize(windows_.size());
    for (size_t w = 0; w < windows_.size(); ++w) {
      const int32_t first = std::max(0, expected - windows_[w].whole(block_size_));
      for (int32_t i = first; i < expected; ++i) {
        const Entry& entry = entries_.at(Prefix(path, i + 1));
        ASSERT_EQ(match.blocks[i], entry.full);
        Hold(windows_[w], entry.windows[w], priority);
        lock.held[w].push_back(entry.windows[w]);
      }
    }
    locks_.push_back(std::move(lock));
  }

  // Some blocks get a window block, like the last blocks of a sequence. They fill tombstones.
  void Insert() {
    if (locks_.empty()) return;
    Lock& lock = locks_[random_() % locks_.size()];
    if (lock.cut_off) return;
    Path path = lock.path;
    const int32_t from = Blocks(path), units = (random_() % 5) * block_size_;
    for (int32_t i = 0; i < units; ++i) path.push_back(random_() % 8 == 0 ? 1 : 0);
    const int32_t count = Blocks(path) - from;
    if (allocator_.free_count() < count) EvictFull(count - allocator_.free_count());
    std::vector<BlockId> blocks;
    if (!allocator_.Allocate(count, BlockHolder::kSequence, blocks)) return;
    const std::vector<BlockId> own = blocks;
    tree_.Insert(lock.handle, Units(path).subspan(size_t(from) * block_size_), blocks);
    allocator_.ReleaseHolds(own, BlockHolder::kSequence);
    lock.path = path;
    for (int32_t i = 0; i < count; ++i) {
      const Path prefix = Prefix(path, from + i + 1);
      const auto [it, is_new] = entries_.try_emplace(
          prefix, Entry{.full = blocks[i], .windows = std::vector(windows_.size(), kNoBlock)});
      ASSERT_EQ(it->second.full, blocks[i]);
      for (size_t w = 0; w < windows_.size(); ++w) {
        BlockId& cached = it->second.windows[w];
        const bool tombstone = !is_new && cached == kNoBlock;
        if (random_() % 4 == 0) continue;
        PutWindow(windows_[w], it->second.full, cached, lock, lock.held[w]);
        healed_ += tombstone && cached != kNoBlock ? 1 : 0;
      }
    }
  }
  void PutWindow(Window& window, BlockId full, BlockId& cached, const Lock& lock,
                 std::vector<BlockId>& held) {
    if (cached != kNoBlock) {  // the sequence takes the cached block
      Hold(window, cached, lock.priority);
      held.push_back(cached);
      return;
    }
    if (window.cache->blocks().free_count() == 0) EvictWindow(window, 1);
    if (window.cache->blocks().free_count() == 0) return;
    std::vector<BlockId> fresh;
    window.cache->Allocate(1, fresh);
    ++window.sequence_holds[fresh[0]];
    held.push_back(fresh[0]);
    window.cache->Put(full, fresh[0], lock.priority);
    if (fresh[0].value() >= window.cache->blocks().limit()) return;
    cached = fresh[0];
    window.uses[fresh[0]] = {
        .created = ++window.tick, .last_used = 0, .uses = 1, .priority = lock.priority};
  }

  void Slide() {
    if (locks_.empty()) return;
    Lock& lock = locks_[random_() % locks_.size()];
    const size_t w = random_() % windows_.size();
    if (lock.held[w].empty()) return;
    LetGo(windows_[w], lock.held[w].front(), BlockHolder::kSequence);
    lock.held[w].erase(lock.held[w].begin());
  }

  void Unlock() {
    if (locks_.empty()) return;
    const size_t which = random_() % locks_.size();
    for (size_t w = 0; w < windows_.size(); ++w) {
      for (const BlockId block : locks_[which].held[w]) {
        LetGo(windows_[w], block, BlockHolder::kSequence);
      }
    }
    locks_.erase(locks_.begin() + which);
  }

  void StartTransfer(Window& window) {
    if (window.uses.empty()) return;
    const BlockId block = std::next(window.uses.begin(), random_() % window.uses.size())->first;
    window.cache->AddHold(block, BlockHolder::kTransfer);
    ++window.transfer_holds[block];
    window.transfers.push_back(block);
  }
  void EndTransfer(Window& window) {
    if (window.transfers.empty()) return;
    const size_t which = random_() % window.transfers.size();
    const BlockId block = window.transfers[which];
    window.transfers.erase(window.transfers.begin() + which);
    LetGo(window, block, BlockHolder::kTransfer);
  }

  // Window blocks are evicted in the policy's order, also from the middle of a prefix.
  void EvictWindow(Window& window, int32_t count) {
    std::vector<BlockId> expected;
    while (static_cast<int32_t>(expected.size()) < count) {
      const std::pair<const BlockId, WindowUse>* victim = nullptr;
      for (const auto& use : window.uses) {
        if (IsHeld(window, use.first)) continue;
        if (victim == nullptr || GoesBefore(policy_, use.second, victim->second)) victim = &use;
      }
      if (victim == nullptr) break;
      expected.push_back(victim->first);
      Tombstone(window, victim->first);
    }
    ASSERT_EQ(window.cache->Evict(count), static_cast<int32_t>(expected.size()));
    for (const BlockId block : expected) {
      ASSERT_TRUE(window.cache->blocks().is_free(block))
          << "the cache must free the same block as the model";
    }
  }
  void Tombstone(Window& window, BlockId block) {
    window.uses.erase(block);
    for (auto& [path, entry] : entries_) {
      BlockId& cached = entry.windows[&window - windows_.data()];
      if (cached == block) cached = kNoBlock;
    }
  }

  void EvictFull(int32_t count) {
    Forget([&] { return tree_.Evict(count); });
  }
  // radix_tree_check_test.cc checks which blocks are evicted. Their window blocks go with them.
  template <typename Call>
  void Forget(Call call) {
    const int32_t removed = call();
    int32_t gone = 0;
    for (auto it = entries_.begin(); it != entries_.end();) {
      if (!allocator_.is_free(it->second.full)) {
        ++it;
        continue;
      }
      ASSERT_FALSE(Covered(it->first));
      ForgetWindows(it->second);
      it = entries_.erase(it);
      ++gone;
    }
    if (!AnyCutOff()) {
      ASSERT_EQ(gone, removed);
    }
  }
  void ForgetWindows(const Entry& entry) {
    for (size_t w = 0; w < windows_.size(); ++w) {
      if (entry.windows[w] == kNoBlock) continue;
      windows_[w].uses.erase(entry.windows[w]);
      ASSERT_EQ(windows_[w].cache->blocks().is_free(entry.windows[w]),
                !IsHeld(windows_[w], entry.windows[w]));
    }
  }

  void Resize(Window& window) {
    const int32_t limit = 10 + static_cast<int32_t>(random_() % 21);
    for (int32_t i = limit; i < 30; ++i) {
      if (window.uses.contains(BlockId(i))) Tombstone(window, BlockId(i));
    }
    window.cache->Resize(limit);
  }

  void Clear() {
    tree_.Clear();
    for (Lock& lock : locks_) lock.cut_off = true;
    for (const auto& [path, entry] : entries_) {
      for (size_t w = 0; w < windows_.size(); ++w) {
        // Window blocks of locked nodes can no longer be matched. They are freed with them or
        // earlier.
        if (entry.windows[w] != kNoBlock && allocator_.is_free(entry.full)) {
          windows_[w].uses.erase(entry.windows[w]);
        }
      }
    }
    entries_.clear();
    // The model does not track cut-off nodes.
    while (!locks_.empty()) Unlock();
    for (Window& window : windows_) window.uses.clear();
  }

  bool AnyCutOff() const {
    return std::any_of(locks_.begin(), locks_.end(), [](const Lock& l) { return l.cut_off; });
  }

  void Check() {
    ASSERT_TRUE(tree_.CheckInvariants().ok()) << tree_.CheckInvariants();
    ASSERT_TRUE(allocator_.CheckConservation().ok()) << allocator_.CheckConservation();
    for (size_t w = 0; w < windows_.size(); ++w) {
      const Window& window = windows_[w];
      ASSERT_TRUE(window.cache->CheckInvariants().ok()) << window.cache->CheckInvariants();
      int32_t evictable = 0, pinned_only = 0;
      for (const auto& [block, use] : window.uses) evictable += IsHeld(window, block) ? 0 : 1;
      for (const auto& [block, count] : window.transfer_holds) {
        const auto owned = window.sequence_holds.find(block);
        const bool shared = owned != window.sequence_holds.end() && owned->second > 0;
        pinned_only += count > 0 && !shared ? 1 : 0;
      }
      ASSERT_EQ(window.cache->evictable(), evictable);
      ASSERT_EQ(window.cache->pinned_only(), pinned_only);
      for (const auto& [path, entry] : entries_) {
        ASSERT_EQ(window.cache->At(entry.full), entry.windows[w]);
      }
    }
  }

  std::mt19937 random_;
  const EvictionPolicy policy_;
  const int32_t block_size_;
  BlockAllocator allocator_;
  std::vector<Window> windows_;
  RadixTree tree_;
  std::map<Path, Entry> entries_;
  std::vector<Lock> locks_;
  int64_t torn_ = 0, healed_ = 0;
};

TEST(RadixTreeWindowsCheck, MatchesEndWhereEveryWindowIsWholeAndWindowBlocksGoInThePolicysOrder) {
  constexpr int kSeeds = RandomSeeds(6 * kEvictionPolicies), kSteps = 12'000;
  int64_t torn = 0, healed = 0;
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    const auto policy = static_cast<EvictionPolicy>(seed % kEvictionPolicies);
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", policy " << static_cast<int>(policy));
    WindowDriver driver(seed, policy, 1 << (seed % 3));
    for (int step = 0; step < kSteps; ++step) {
      driver.Step();
      ASSERT_FALSE(testing::Test::HasFatalFailure()) << "step " << step;
    }
    torn += driver.torn();
    healed += driver.healed();
  }
  EXPECT_GT(torn, 40 * kSeeds);
  EXPECT_GT(healed, 40 * kSeeds);
  ReportRandomOperations(kSeeds * kSteps);
}

}  // namespace
}  // namespace baton
