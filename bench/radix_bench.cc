// Benchmark of the prefix tree. It measures:
//   - match and insert, per call and per block. Their limit is a target: the 1.5 us that SGLang
//     publishes for a walk of its tree.
//   - one eviction under every policy, in trees of 10^3 to 10^6 nodes. The cost should not grow:
//     `evict_growth_*` is the largest tree's cost divided by the smallest's, and its limit is 1.
//   - insertion with and without KV events: the cost of hashing and encoding them.
//
// An eviction does the same work in a large tree, but its cache lines are cold there. The limit of
// each `evict_*` is the smallest tree's cost. `five_lines_ns_*` is what memory may add: the time to
// touch the five lines that an eviction needs (node, parent, child slot, holder counts, the block's
// node), one after the other, in arrays of the tree's size. Evictions in order of age do better.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "bench/figure_list.h"
#include "cache/radix_tree.h"
#include "common/check.h"
#include "common/command_line.h"
#include "common/settings.h"

namespace baton {
namespace {

constexpr double kTreeWalkUs = 1.5;
constexpr CacheNamespace kSpace{1};
constexpr int kRounds = 5;

struct BenchOptions {
  int64_t seed = 1;
  int32_t block_size = 16;
  int32_t most_nodes = 1'000'000;
};

double NowUs() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::micro>(now).count();
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

class Report {
 public:
  void Add(const std::string& name, double value, const std::string& unit, double limit) {
    std::printf("%-34s %10.4f %-10s %10.4f %8.2f\n", name.c_str(), value, unit.c_str(), limit,
                value / limit);
    figures_.Add(name, value, unit, limit);
  }
  void Heading() {
    std::printf("%-34s %10s %-10s %10s %8s\n", "figure", "value", "unit", "limit", "ratio");
  }
  void PrintJson(int64_t seed) { figures_.Print("radix", seed); }

 private:
  FigureList figures_;
};

// A tree of conversations. Conversations share a few system prompts and continue with units of
// their own. They branch off each other, so a path has several nodes.
class Conversations {
 public:
  // Reports the tree's changes to `events`, unless it is null.
  Conversations(const BenchOptions& options, int32_t count, int32_t blocks_each,
                KvEventBatcher* events = nullptr)
      : options_(options),
        random_(options.seed),
        allocator_((count + 1) * (blocks_each + 1)),
        tree_(options.block_size, &allocator_),
        events_(events) {
    if (events != nullptr) tree_.PublishTo(events);
    std::vector<std::vector<CacheUnit>> systems(8);
    for (auto& system : systems) system = Random(blocks_each / 4);
    for (int32_t i = 0; i < count; ++i) {
      std::vector<CacheUnit> units = systems[i % systems.size()];
      if (i >= 8) {
        // Even conversations branch off a random earlier one, odd ones off one of the first eight.
        const auto& other = prompts_[i % 2 == 0 ? random_() % i : i % 8];
        units.assign(other.begin(), other.begin() + other.size() / 2);
      }
      const auto own = Random(blocks_each - units.size() / options_.block_size);
      units.insert(units.end(), own.begin(), own.end());
      prompts_.push_back(units);
    }
  }

  std::vector<CacheUnit> Random(int32_t blocks) {
    std::vector<CacheUnit> units(size_t(blocks) * options_.block_size);
    for (CacheUnit& unit : units) unit = random_() % 50'000;
    return units;
  }
  // Matches `units` and inserts the rest, as a request does. Returns the insertion's microseconds.
  double InsertUs(const std::vector<CacheUnit>& units) {
    RadixMatch match = tree_.Match(kSpace, units, INT32_MAX);
    const auto rest = std::span(units).subspan(match.blocks.size() * options_.block_size);
    std::vector<BlockId> own;
    CHECK(allocator_.Allocate(rest.size() / options_.block_size, BlockHolder::kSequence, own));
    std::vector<BlockId> blocks = own;
    const double start = NowUs();
    tree_.Insert(match.lock, rest, blocks);
    if (events_ != nullptr) events_->Take();
    const double insert_us = NowUs() - start;
    allocator_.ReleaseHolds(own, BlockHolder::kSequence);
    return insert_us;
  }
  // Median microseconds of a match and of releasing its lock. The prompt is in the CPU cache, as
  // after tokenising. How much of the tree is in the cache depends on its size.
  double MatchUs() {
    std::vector<size_t> order(prompts_.size());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
    std::vector<double> calls_us;
    std::vector<CacheUnit> warm;
    for (const size_t i : order) {
      warm = prompts_[i];
      const double start = NowUs();
      tree_.Match(kSpace, warm, INT32_MAX);
      calls_us.push_back(NowUs() - start);
    }
    return Median(calls_us);
  }

  // Median microseconds to compare a prompt in the CPU cache with a contiguous cold copy of its
  // own: a walk that compares every unit, without a tree. A match can be faster where prompts share
  // nodes, which then are in the cache.
  double CompareUs() {
    const std::vector<std::vector<CacheUnit>> copies = prompts_;
    std::vector<double> calls_us;
    std::vector<CacheUnit> warm;
    int64_t equal = 0;
    for (size_t i = 0; i < prompts_.size(); ++i) {
      warm = prompts_[i];
      const double start = NowUs();
      equal += std::memcmp(warm.data(), copies[i].data(), warm.size() * sizeof(CacheUnit)) == 0;
      calls_us.push_back(NowUs() - start);
    }
    CHECK_EQ(equal, static_cast<int64_t>(prompts_.size()));
    return Median(calls_us);
  }

  const std::vector<std::vector<CacheUnit>>& prompts() const { return prompts_; }
  RadixTree& tree() { return tree_; }

 private:
  const BenchOptions options_;
  std::mt19937_64 random_;
  BlockAllocator allocator_;
  RadixTree tree_;
  KvEventBatcher* const events_;
  std::vector<std::vector<CacheUnit>> prompts_;
};

// Nanoseconds per block of inserting every prompt into the empty tree. The first round is a warm-up
// that touches the memory, because a pool in use has touched its memory before.
double InsertNsPerBlock(Conversations& cache) {
  double insert_us = 0;
  for (int round = 0; round < 2; ++round) {
    cache.tree().Clear();
    insert_us = 0;
    for (const auto& prompt : cache.prompts()) insert_us += cache.InsertUs(prompt);
  }
  return insert_us * 1000 / cache.tree().evictable_blocks();
}

void MeasureEvents(const BenchOptions& options, Report& report) {
  constexpr int32_t kPrompts = 4096, kBlocks = 64;
  KvEventBatcher events;
  Conversations silent(options, kPrompts, kBlocks);
  Conversations telling(options, kPrompts, kBlocks, &events);
  std::vector<double> silent_ns, telling_ns, snapshot_ns;
  for (int i = 0; i < kRounds; ++i) {
    silent_ns.push_back(InsertNsPerBlock(silent));
    telling_ns.push_back(InsertNsPerBlock(telling));
    const double start = NowUs();
    telling.tree().PublishAll(events);
    events.Take();
    snapshot_ns.push_back((NowUs() - start) * 1000 / telling.tree().evictable_blocks());
  }
  report.Add("insert_told_ns_per_block", Median(telling_ns), "ns/block", Median(silent_ns));
  report.Add("snapshot_ns_per_block", Median(snapshot_ns), "ns/block", Median(silent_ns));
}

void MeasureWalks(const BenchOptions& options, Report& report) {
  for (const auto& [count, blocks] : {std::pair{64, 64}, {64, 512}, {4096, 64}}) {
    Conversations cache(options, count, blocks);
    const double insert_ns = InsertNsPerBlock(cache);
    const double inserted = cache.tree().evictable_blocks();
    std::vector<double> match_us;
    for (int i = 0; i < kRounds; ++i) match_us.push_back(cache.MatchUs());
    const std::string name = std::to_string(count) + "x" + std::to_string(blocks);
    std::printf("# %s: %d prompts of %d blocks, %lld nodes, depth %d\n", name.c_str(), count,
                blocks, static_cast<long long>(cache.tree().Stats().nodes),
                cache.tree().nodes().Depth());
    report.Add("match_us_" + name, Median(match_us), "us/call", kTreeWalkUs);
    report.Add("compare_us_" + name, cache.CompareUs(), "us/call", kTreeWalkUs);
    report.Add("match_ns_per_block_" + name, Median(match_us) * 1000 / blocks, "ns/block",
               kTreeWalkUs * 1000 / blocks);
    report.Add("insert_us_" + name, insert_ns * inserted / 1000 / count, "us/call", kTreeWalkUs);
    report.Add("insert_ns_per_block_" + name, insert_ns, "ns/block", kTreeWalkUs * 1000 / blocks);
  }
}

// Measures evictions from a full cache of `nodes` one-block nodes, in groups with a common parent.
// Evicts a batch of blocks, then inserts as many new ones, so that the tree keeps its size. Returns
// the median batch's nanoseconds per block.
double EvictionNs(const BenchOptions& options, EvictionPolicy policy, int32_t nodes) {
  constexpr int32_t kGroup = 16;
  constexpr int32_t kBatch = 32;
  constexpr int32_t kMeasured = 1'000;
  std::mt19937_64 random(options.seed);
  BlockAllocator allocator(nodes + 2 * kBatch);
  RadixTree tree(options.block_size, &allocator, policy);
  std::vector<CacheUnit> units(2 * options.block_size);
  const auto put = [&](CacheUnit group, CacheUnit leaf) {
    std::fill(units.begin(), units.begin() + options.block_size, group);
    std::fill(units.begin() + options.block_size, units.end(), leaf);
    RadixMatch match = tree.Match(kSpace, units, 2, 0, static_cast<int32_t>(random() % 5));
    const int32_t missing = 2 - static_cast<int32_t>(match.blocks.size());
    std::vector<BlockId> own;
    CHECK(allocator.Allocate(missing, BlockHolder::kSequence, own));
    std::vector<BlockId> blocks = own;
    tree.Insert(match.lock, std::span(units).subspan(match.blocks.size() * options.block_size),
                blocks);
    allocator.ReleaseHolds(own, BlockHolder::kSequence);
  };
  CacheUnit next = 0;
  const int64_t groups = std::max(1, nodes / kGroup);
  while (tree.Stats().nodes < nodes) put(random() % groups, ++next);
  std::vector<double> batches_ns;
  for (int32_t i = 0; i < kMeasured; ++i) {
    const double start = NowUs();
    const int32_t evicted = tree.Evict(kBatch);
    batches_ns.push_back((NowUs() - start) * 1000 / evicted);
    while (tree.Stats().nodes < nodes && allocator.free_count() >= 2)
      put(random() % groups, ++next);
  }
  return Median(batches_ns);
}

// Nanoseconds to touch one random entry in each of five arrays as large as the tree's own. The
// next position depends on the value read last.
double TouchNs(const BenchOptions& options, int32_t nodes) {
  constexpr int32_t kTouches = 200'000;
  constexpr int kWords[] = {12, 12, 2, 2, 1};  // 8-byte words per entry
  std::mt19937_64 random(options.seed);
  std::vector<std::vector<uint64_t>> arrays;
  for (const int words : kWords) {
    auto& array = arrays.emplace_back(int64_t{nodes} * words);
    for (uint64_t& word : array) word = random();
  }
  uint64_t at = 0;
  const double start = NowUs();
  for (int32_t i = 0; i < kTouches; ++i) {
    uint64_t read = i;
    for (size_t a = 0; a < arrays.size(); ++a) {
      const uint64_t entry = (at * (2 * a + 1) >> 8) % nodes;
      read += arrays[a][entry * kWords[a]]++;
    }
    at = read * 0x9E3779B97F4A7C15u;
  }
  const double ns = (NowUs() - start) * 1000 / kTouches;
  if (at == 1) std::printf("#\n");  // keeps the compiler from removing the reads
  return ns;
}

void MeasureEviction(const BenchOptions& options, Report& report) {
  const std::pair<const char*, EvictionPolicy> policies[] = {
      {"lru", EvictionPolicy::kLru},   {"lfu", EvictionPolicy::kLfu},
      {"fifo", EvictionPolicy::kFifo}, {"mru", EvictionPolicy::kMru},
      {"filo", EvictionPolicy::kFilo}, {"priority", EvictionPolicy::kPriority},
      {"slru", EvictionPolicy::kSlru}};
  double least_ns = 0;
  for (int32_t nodes = 1'000; nodes <= options.most_nodes; nodes *= 10) {
    const double ns = TouchNs(options, nodes);
    if (least_ns == 0) least_ns = ns;
    report.Add("five_lines_ns_" + std::to_string(nodes), ns, "ns", least_ns);
  }
  for (const auto& [name, policy] : policies) {
    double smallest = 0;
    double ns = 0;
    for (int32_t nodes = 1'000; nodes <= options.most_nodes; nodes *= 10) {
      ns = EvictionNs(options, policy, nodes);
      if (smallest == 0) smallest = ns;
      report.Add(std::string("evict_") + name + "_" + std::to_string(nodes), ns, "ns/block",
                 smallest);
    }
    report.Add(std::string("evict_growth_") + name, ns / smallest, "ratio", 1);
  }
}

int Run(const BenchOptions& options) {
  Report report;
  report.Heading();
  MeasureWalks(options, report);
  MeasureEvents(options, report);
  MeasureEviction(options, report);
  report.PrintJson(options.seed);
  return 0;
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  baton::CommandLine line("Measures the prefix tree: match, insert, eviction.");
  baton::BenchOptions options;
  baton::SettingList settings;
  settings.Add("seed", &options.seed, 0, INT64_MAX, "seed of the random prompts");
  settings.Add("block-size", &options.block_size, 1, 128, "tokens in a block");
  settings.Add("most-nodes", &options.most_nodes, 1'000, 10'000'000, "largest tree to evict from");
  line.AddSettings(settings, "Benchmark");
  if (const std::optional<int> ended = line.Parse(argc, argv)) return *ended;
  return baton::Run(options);
}
