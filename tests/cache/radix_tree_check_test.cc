// The tree against a reference model: a map from each cached prefix to its last block and its node.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <tuple>

#include "cache/radix_tree.h"
#include "tests/common/random_operations.h"

namespace baton {
namespace {

// A path: the namespace, then units of whole blocks.
using Path = std::vector<CacheUnit>;

bool Begins(const Path& path, const Path& prefix) {
  return path.size() >= prefix.size() && std::equal(prefix.begin(), prefix.end(), path.begin());
}

class RadixModel {
 public:
  // A locked prefix. Prefixes that Clear cut off leave the model.
  struct Lock {
    Path path;
    int32_t priority;
    bool cut_off = false;
  };

  RadixModel(int32_t block_size, EvictionPolicy policy)
      : block_size_(block_size), policy_(policy) {}

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
  int32_t size() const { return entries_.size(); }
  bool IsLeaf(const Path& prefix) const {
    const auto next = std::next(entries_.find(prefix));
    return next == entries_.end() || !Begins(next->first, prefix);
  }

  // A node must end at `path`. If a longer node contains it, its leading part becomes a new node.
  void Split(const Path& path) {
    if (path.size() == 1) return;
    const int32_t node = entries_.at(path).node;
    bool longer = false;
    for (const auto& [prefix, entry] : entries_) {
      longer |= entry.node == node && prefix.size() > path.size();
    }
    if (!longer) return;
    const int32_t upper = next_node_++;
    nodes_[upper] = nodes_[node];
    for (auto& [prefix, entry] : entries_) {
      if (entry.node == node && prefix.size() <= path.size()) entry.node = upper;
    }
  }
  // A lock now covers the nodes after `from` up to `to`.
  void Cover(const Path& from, const Path& to, int32_t priority) {
    std::vector<int32_t> covered;
    for (int32_t i = Blocks(from) + 1; i <= Blocks(to); ++i) {
      const int32_t node = entries_.at(Prefix(to, i)).node;
      if (covered.empty() || covered.back() != node) covered.push_back(node);
    }
    for (const int32_t node : covered) {
      ++nodes_[node].uses;
      nodes_[node].priority = std::max(nodes_[node].priority, priority);
    }
  }
  // Adds `blocks` after `end`. They extend its node if it is a leaf that only `lock` covers.
  void Add(const Path& path, const Path& end, std::span<const BlockId> blocks, const Lock& lock,
           const std::vector<Lock>& locks) {
    int32_t node = -1;
    if (end.size() > 1 && IsLeaf(end)) {
      const int64_t others = std::count_if(locks.begin(), locks.end(), [&](const Lock& other) {
        return !other.cut_off && &other != &lock && Begins(other.path, end);
      });
      if (others == 0) node = entries_.at(end).node;
    }
    if (node < 0) {
      node = next_node_++;
      nodes_[node] = {.created = ++tick_, .last_used = 0, .uses = 1, .priority = lock.priority};
    }
    for (size_t i = 0; i < blocks.size(); ++i) {
      entries_[Prefix(path, Blocks(end) + 1 + i)] = {.block = blocks[i], .node = node};
    }
  }
  void Use(const Path& path) {
    ++tick_;
    for (int32_t i = 1; i <= Blocks(path); ++i) {
      nodes_[entries_.at(Prefix(path, i)).node].last_used = tick_;
    }
  }

  // The namespace gets this owner, as in RadixTree::Match. `locks` tell if it exists already.
  void SetOwner(CacheUnit space, const std::vector<Lock>& locks, std::optional<CacheOwner> owner) {
    bool exists = false;
    for (const auto& [path, entry] : entries_) exists |= path[0] == space;
    for (const Lock& lock : locks) exists |= !lock.cut_off && lock.path[0] == space;
    if (!exists) owner_of_[space] = 0;
    if (!owner) return;
    if (owner->share > 0) owner_of_[space] = owner->id;
    if (owner_of_[space] != 0) share_of_[owner_of_[space]] = owner->share;
  }
  // By owner: whether it has more blocks than its share of the pool.
  std::map<uint64_t, bool> OverShare(int32_t pool) const {
    std::map<uint64_t, int64_t> cached;
    for (const auto& [path, entry] : entries_) ++cached[OwnerOf(path)];
    std::map<uint64_t, bool> over;
    for (const auto& [id, blocks] : cached) {
      over[id] = id == 0 || blocks > static_cast<int64_t>(share_of_.at(id) * pool);
    }
    return over;
  }
  // Prefix of the next block to evict, or nullopt. The policy selects it among leaves without a
  // lock, first among those of owners that are over their share of the pool.
  std::optional<Path> Victim(const std::vector<Lock>& locks, int32_t pool) const {
    const std::pair<const Path, Entry>* victim = nullptr;
    const std::map<uint64_t, bool> over_share = OverShare(pool);
    const auto goes_before = [&](const auto& a, const auto& b) {
      const bool over = over_share.at(OwnerOf(a.first));
      if (over != over_share.at(OwnerOf(b.first))) return over;
      return GoesBefore(a.second.node, b.second.node);
    };
    for (const auto& entry : entries_) {
      if (!IsLeaf(entry.first) || Covered(entry.first, locks)) continue;
      if (victim == nullptr || goes_before(entry, *victim)) victim = &entry;
    }
    if (victim == nullptr) return std::nullopt;
    return victim->first;
  }
  bool Covered(const Path& prefix, const std::vector<Lock>& locks) const {
    return std::any_of(locks.begin(), locks.end(), [&](const Lock& lock) {
      return !lock.cut_off && Begins(lock.path, prefix);
    });
  }
  int32_t CountCovered(const std::vector<Lock>& locks) const {
    return std::count_if(entries_.begin(), entries_.end(),
                         [&](const auto& entry) { return Covered(entry.first, locks); });
  }
  void Remove(const Path& prefix) { entries_.erase(prefix); }
  std::vector<Path> Paths() const {
    std::vector<Path> paths;
    for (const auto& [path, entry] : entries_) paths.push_back(path);
    return paths;
  }

 private:
  struct Entry {
    BlockId block;
    int32_t node;
  };
  struct Node {
    uint64_t created = 0, last_used = 0, uses = 0;
    int32_t priority = INT32_MIN;
  };
  bool GoesBefore(int32_t a_node, int32_t b_node) const {
    const Node& a = nodes_.at(a_node);
    const Node& b = nodes_.at(b_node);
    switch (policy_) {
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
  uint64_t OwnerOf(const Path& path) const {
    const auto owner = owner_of_.find(path[0]);
    return owner == owner_of_.end() ? 0 : owner->second;
  }
  int32_t block_size_;
  EvictionPolicy policy_;
  std::map<Path, Entry> entries_;
  std::map<int32_t, Node> nodes_;
  std::map<CacheUnit, uint64_t> owner_of_;  // by namespace; 0: common
  std::map<uint64_t, double> share_of_;
  int32_t next_node_ = 0;
  uint64_t tick_ = 0;
};

class RadixDriver {
 public:
  RadixDriver(uint32_t seed, EvictionPolicy policy, int32_t block_size, int32_t pool,
              bool has_owners)
      : random_(seed),
        has_owners_(has_owners),
        block_size_(block_size),
        allocator_(pool),
        // Hashes with no bit, with two bits, or whole.
        tree_(block_size, &allocator_, policy, /*hash_seed=*/seed,
              seed % 3 == 0   ? 0
              : seed % 3 == 1 ? 3
                              : UINT32_MAX),
        model_(block_size, policy) {}

  void Step() {
    const uint32_t kind = random_() % 64;
    if (kind < 20) {
      Match();
    } else if (kind < 40) {
      Insert();
    } else if (kind < 50) {
      Unlock();
    } else if (kind < 58) {
      Evict(random_() % 4);
    } else if (kind < 61) {
      Remove();
    } else if (kind == 61) {
      EvictFrom();
    } else if (kind == 62) {
      Duplicate();
    } else if (random_() % 4 == 0) {
      Clear();
    }
    Check();
  }
  void UnlockAll() {
    while (!locks_.empty()) Unlock();
  }

 private:
  using Lock = RadixModel::Lock;

  Path RandomPath(Path path, int32_t most_blocks) {
    const int32_t units = (random_() % (most_blocks + 1)) * block_size_;
    for (int32_t i = 0; i < units; ++i) path.push_back(random_() % 8 == 0 ? 1 : 0);
    return path;
  }
  static std::span<const CacheUnit> Units(const Path& path) { return std::span(path).subspan(1); }

  void Match() {
    if (locks_.size() == 6) return Unlock();
    Path path = RandomPath({1 + random_() % (has_owners_ ? 3 : 2)}, 10);
    if (random_() % 2 == 0) path.push_back(0);  // a partial block has no effect
    const int32_t most = random_() % 12, least = random_() % 3;
    const int32_t priority = static_cast<int32_t>(random_() % 5) - 2;
    int32_t expected = std::min(most, model_.Matched(path));
    if (expected < least) expected = 0;
    std::optional<CacheOwner> owner;
    if (has_owners_ && random_() % 8 > 0) {  // namespaces 1 and 3 have the same owner
      owner = {.id = 1 + path[0] % 2, .share = random_() % 4 == 0 ? 0 : 0.1 * (random_() % 6)};
    }
    model_.SetOwner(path[0], locks_, owner);
    RadixMatch match =
        tree_.Match(CacheNamespace(path[0]), Units(path), most, least, priority, owner);
    ASSERT_EQ(match.blocks.size(), expected);
    path = model_.Prefix(path, expected);
    for (int32_t i = 0; i < expected; ++i) {
      ASSERT_EQ(match.blocks[i], model_.At(model_.Prefix(path, i + 1)));
    }
    model_.Split(path);
    model_.Cover({path[0]}, path, priority);
    handles_.push_back(std::move(match.lock));
    locks_.push_back({.path = path, .priority = priority});
  }

  void Duplicate() {
    if (locks_.empty() || locks_.size() == 6) return;
    const size_t which = random_() % locks_.size();
    handles_.push_back(tree_.Duplicate(handles_[which]));
    locks_.push_back(Lock(locks_[which]));
    if (locks_[which].cut_off) return;
    model_.Cover({locks_[which].path[0]}, locks_[which].path, locks_[which].priority);
  }

  void Insert() {
    if (locks_.empty()) return;
    const size_t which = random_() % locks_.size();
    if (locks_[which].cut_off) return;  // radix_tree_eviction_test.cc tests this
    const Path before = locks_[which].path;
    const Path path = RandomPath(before, 5);
    const int32_t from = model_.Blocks(before), count = model_.Blocks(path) - from;
    std::vector<BlockId> blocks;
    if (allocator_.free_count() < count) Evict(count - allocator_.free_count());
    if (!allocator_.Allocate(count, BlockHolder::kSequence, blocks)) return;
    const std::vector<BlockId> own = blocks;
    const int32_t present = model_.Matched(path) - from;
    ASSERT_EQ(
        tree_.Insert(handles_[which], Units(path).subspan(size_t(from) * block_size_), blocks),
        present);
    const Path end = model_.Prefix(path, from + present);
    model_.Split(end);
    model_.Cover(before, end, locks_[which].priority);
    if (present < count) {
      model_.Add(path, end, std::span(own).subspan(present), locks_[which], locks_);
    }
    for (int32_t i = 0; i < count; ++i) {
      ASSERT_EQ(blocks[i], model_.At(model_.Prefix(path, from + i + 1)));
    }
    allocator_.ReleaseHolds(own, BlockHolder::kSequence);
    locks_[which].path = path;
  }

  void Unlock() {
    if (locks_.empty()) return;
    const size_t which = random_() % locks_.size();
    if (!locks_[which].cut_off) model_.Use(locks_[which].path);
    handles_.erase(handles_.begin() + which);
    locks_.erase(locks_.begin() + which);
  }

  void ExpectGone(const std::vector<BlockId>& blocks) {
    for (const BlockId block : blocks) {
      ASSERT_TRUE(allocator_.is_free(block)) << "the tree must free the same block as the model";
    }
  }

  void Evict(int32_t count) {
    std::vector<BlockId> expected;
    while (static_cast<int32_t>(expected.size()) < count) {
      const std::optional<Path> victim = model_.Victim(locks_, allocator_.limit());
      if (!victim) break;
      expected.push_back(model_.At(*victim));
      model_.Remove(*victim);
    }
    ASSERT_EQ(tree_.Evict(count), static_cast<int32_t>(expected.size()));
    ExpectGone(expected);
  }

  void Remove() {
    Path path = RandomPath({1 + random_() % 2}, 8);
    if (const auto paths = model_.Paths(); !paths.empty() && random_() % 2 == 0) {
      path = paths[random_() % paths.size()];
    }
    const Path whole = path;
    std::vector<BlockId> expected;
    ASSERT_EQ(tree_.Contains(CacheNamespace(path[0]), Units(path)),
              model_.Matched(path) == model_.Blocks(path));
    if (model_.Matched(path) == model_.Blocks(path)) {
      while (path.size() > 1 && model_.IsLeaf(path) && !model_.Covered(path, locks_)) {
        expected.push_back(model_.At(path));
        model_.Remove(path);
        path = model_.Prefix(path, model_.Blocks(path) - 1);
      }
    }
    ASSERT_EQ(tree_.Remove(CacheNamespace(whole[0]), Units(whole)), expected.size());
    ExpectGone(expected);
  }

  void EvictFrom() {
    const BlockId first(static_cast<int32_t>(random_() % allocator_.total()));
    std::vector<Path> cut;
    for (const Path& path : model_.Paths()) {
      if (model_.At(path) >= first) cut.push_back(path);
    }
    std::vector<BlockId> expected;
    for (const Path& path : model_.Paths()) {
      const bool goes = std::any_of(cut.begin(), cut.end(),
                                    [&](const Path& prefix) { return Begins(path, prefix); });
      if (!goes || model_.Covered(path, locks_)) continue;
      expected.push_back(model_.At(path));
      model_.Remove(path);
    }
    ASSERT_EQ(tree_.EvictFrom(first), static_cast<int32_t>(expected.size()));
    ExpectGone(expected);
  }

  // Clears everything, or one namespace. The model does not count cut-off blocks for owners.
  void Clear() {
    if (has_owners_) UnlockAll();
    std::optional<CacheUnit> only;
    if (const std::vector<Path> paths = model_.Paths(); !paths.empty() && random_() % 2 == 0) {
      only = paths[random_() % paths.size()][0];
    }
    const auto goes = [&](const Path& path) { return !only || path[0] == *only; };
    int32_t freed = 0;
    for (const Path& path : model_.Paths()) {
      freed += goes(path) && !model_.Covered(path, locks_) ? 1 : 0;
    }
    ASSERT_EQ(only ? tree_.Clear(CacheNamespace(*only)) : tree_.Clear(), freed);
    for (const Path& path : model_.Paths()) {
      if (goes(path)) model_.Remove(path);
    }
    for (Lock& lock : locks_) lock.cut_off |= goes(lock.path);
  }

  void Check() {
    ASSERT_TRUE(tree_.CheckInvariants().ok()) << tree_.CheckInvariants();
    ASSERT_TRUE(allocator_.CheckConservation().ok()) << allocator_.CheckConservation();
    const int32_t covered = model_.CountCovered(locks_);
    ASSERT_EQ(tree_.evictable_blocks(), model_.size() - covered);
    if (std::any_of(locks_.begin(), locks_.end(), [](const Lock& lock) { return lock.cut_off; })) {
      ASSERT_GE(tree_.protected_blocks(), covered);
    } else {
      ASSERT_EQ(tree_.protected_blocks(), covered);
    }
    ASSERT_EQ(allocator_.Account().cached, tree_.evictable_blocks() + tree_.protected_blocks());
  }

  std::mt19937 random_;
  const bool has_owners_;
  const int32_t block_size_;
  BlockAllocator allocator_;
  RadixTree tree_;
  RadixModel model_;
  std::vector<RadixLock> handles_;  // parallel to locks_
  std::vector<Lock> locks_;
};

TEST(RadixTreeCheck, AgreesWithALiteralModelOverRandomOperationsUnderEveryPolicy) {
  constexpr int kSeeds = RandomSeeds(8 * kEvictionPolicies), kSteps = 11'000;
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    const auto policy = static_cast<EvictionPolicy>(seed % kEvictionPolicies);
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", policy " << static_cast<int>(policy));
    RadixDriver driver(seed, policy, 1 << (seed % 3), 20 + 10 * (seed % 4), seed % 2 == 0);
    for (int step = 0; step < kSteps; ++step) {
      driver.Step();
      ASSERT_FALSE(testing::Test::HasFatalFailure()) << "step " << step;
    }
    driver.UnlockAll();
  }
  ReportRandomOperations(kSeeds * kSteps);
}

}  // namespace
}  // namespace baton
