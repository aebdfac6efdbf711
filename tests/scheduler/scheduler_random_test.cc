// Random workloads, compared with a model that knows every token. A failing seed can be replayed.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "scheduler/scheduler.h"
#include "tests/common/random_operations.h"
#include "tests/scheduler/scheduler_bench.h"

namespace baton {
namespace {

using ::testing::Contains;

struct Workload {
  uint32_t seed;
  KvCacheOptions pool;
  SchedulerOptions options;
};

class RandomRun {
 public:
  explicit RandomRun(const Workload& workload)
      : random_(workload.seed), pool_(workload.pool), bench_(workload.pool, workload.options) {
    bench_.set_budget_to_check(workload.options.token_budget, workload.options.mixed_prompt_tokens);
  }

  void Arrive() {
    const int32_t most = pool_.num_blocks * pool_.block_size;
    const int32_t length = 1 + random_() % std::min(most, 60);
    // A prompt has a common beginning from a small set, then its own tail.
    std::vector<TokenId> prompt = Prompt(length, static_cast<TokenId>(random_() % 3));
    const int32_t own = random_() % length;
    for (int32_t i = length - own; i < length; ++i) prompt[i] = random_() % 3;
    const int32_t generate = 1 + random_() % 40;
    const int32_t priority = random_() % 4 == 0 ? 1 : 0;
    const CacheNamespace space(1 + random_() % 2);
    SequenceSpec spec = bench_.Spec(next_, prompt, generate, priority, space);
    const bool hand_off = random_() % 3 == 0;
    spec.awaits_kv = !hand_off && random_() % 8 == 0;
    const absl::Status status =
        hand_off ? bench_.scheduler().AddWaitingForKv(spec) : bench_.scheduler().Add(spec);
    if (status.ok()) live_.push_back(spec.id);
    if (status.ok() && hand_off) HoldSome(spec.id);
    ++next_;
  }
  // A transfer holds part of a sequence's blocks, possibly longer than the sequence lives.
  void HoldSome(SequenceId id) {
    std::vector<std::vector<BlockId>>& hold = holds_.emplace_back();
    for (int32_t group = 0; group < bench_.cache().groups(); ++group) {
      const auto table = bench_.cache().BlockTable(id, group);
      hold.emplace_back(table.begin(), table.begin() + random_() % (table.size() + 1));
      std::erase(hold.back(), kNoBlock);
      bench_.cache().HoldForTransfer(hold.back(), group);
    }
  }
  void EndTransfer() {
    if (holds_.empty()) return;
    for (int32_t group = 0; group < bench_.cache().groups(); ++group) {
      bench_.cache().ReleaseTransferHold(holds_.back()[group], group);
    }
    holds_.pop_back();
  }
  void KvArrives(bool all) {
    for (const SequenceId id : live_) {
      if (!bench_.scheduler().Contains(id)) continue;
      if (bench_.scheduler().phase(id) != SequencePhase::kWaitingForKv) continue;
      if (!all && random_() % 2 == 0) continue;
      const int32_t matched = bench_.cache().committed(id);
      const int32_t missing = static_cast<int32_t>(bench_.scheduler().tokens(id).size()) - matched;
      const int32_t arrived = random_() % 3 == 0 ? random_() % missing : missing;
      bench_.KvArrives(id, matched + arrived);
    }
  }
  void CancelOne() {
    if (live_.empty()) return;
    const SequenceId id = live_[random_() % live_.size()];
    if (bench_.scheduler().Contains(id)) bench_.Cancel(id);
  }
  void Step() {
    const SchedulerOutput output = bench_.Step();
    work_ += output.total_tokens;
    std::erase_if(live_, [&](SequenceId id) { return !bench_.scheduler().Contains(id); });
  }
  void Event() {
    const uint32_t kind = random_() % 12;
    if (kind < 4) Arrive();
    if (kind == 4) CancelOne();
    if (kind == 5) EndTransfer();
    if (kind == 6) KvArrives(/*all=*/false);
    if (kind == 7 && !live_.empty()) {
      const SequenceId id = live_[random_() % live_.size()];
      if (bench_.cache().Contains(id)) HoldSome(id);
    }
    if (kind == 8) bench_.cache().ClearCache();
    if (bench_.scheduler().has_work()) Step();
  }
  // All sequences must end within a number of steps that depends on the work.
  void Drain() {
    while (!holds_.empty()) EndTransfer();
    KvArrives(/*all=*/true);
    const size_t bound = 200 + 2000 * live_.size();
    size_t steps = 0;
    while (bench_.scheduler().has_work()) {
      Step();
      KvArrives(/*all=*/true);  // of hand-offs that have left the queue
      ASSERT_LT(++steps, bound) << live_.size() << " sequences make no progress";
    }
    EXPECT_EQ(bench_.scheduler().waiting_count() + bench_.scheduler().running_count() +
                  bench_.scheduler().waiting_for_kv_count(),
              0);
    bench_.ExpectAllCorrect();
    EXPECT_EQ(bench_.cache().AvailableBlocks(), bench_.cache().PoolBlocks());
  }
  SchedulerBench& bench() { return bench_; }
  int64_t work() const { return work_; }

 private:
  std::mt19937 random_;
  KvCacheOptions pool_;
  SchedulerBench bench_;
  uint64_t next_ = 1;
  int64_t work_ = 0;
  std::vector<SequenceId> live_;
  std::vector<std::vector<std::vector<BlockId>>> holds_;  // by group
};

Workload RandomWorkload(uint32_t seed) {
  std::mt19937 random(seed);
  Workload workload{.seed = seed, .pool = {}, .options = {}};
  workload.pool.num_blocks = 3 + random() % 40;
  workload.pool.block_size = 1 << random() % 4;
  workload.pool.paged = random() % 6 != 0;
  const uint32_t kind = random() % 8;
  workload.pool.kind = !workload.pool.paged || kind < 2 ? CacheKind::kNaive
                       : kind == 2                      ? CacheKind::kChunkOnly
                                                        : CacheKind::kRadix;
  workload.pool.high_water = random() % 4 == 0 ? 0.9 : 1.0;
  workload.pool.low_water = workload.pool.high_water - 0.1;
  workload.pool.eviction_policy = static_cast<EvictionPolicy>(random() % kEvictionPolicies);
  workload.pool.min_prefix_tokens = random() % 3 == 0 ? random() % 12 : 0;
  workload.pool.record_trace = true;
  workload.options.token_budget = 1 + random() % 40;
  workload.options.max_chunk_tokens = 1 + random() % 40;
  workload.options.max_running = 1 + random() % 8;
  workload.options.max_waiting = 1 + random() % 20;
  workload.options.insert_chunks = random() % 4 != 0;
  workload.options.mixed_prompt_tokens = random() % 2 == 0 ? 0 : 1 + random() % 20;
  return workload;
}

// Adds windows with the smallest possible pools, or slightly larger ones.
Workload RandomWorkloadWithWindows(uint32_t seed) {
  Workload workload = RandomWorkload(seed);
  std::mt19937 random(seed);
  KvCacheOptions& pool = workload.pool;
  pool.max_step_tokens = std::min(workload.options.max_chunk_tokens, workload.options.token_budget);
  for (uint32_t i = 0; i <= seed % 2; ++i) {
    const int32_t window = static_cast<int32_t>(1 + random() % 30 + 40 * i);
    const int32_t least = (window + pool.max_step_tokens) / pool.block_size + 2;
    pool.windows.push_back({.window = window,
                            .num_blocks = static_cast<int32_t>(least + random() % (2 * least)),
                            .max_blocks = 0});
  }
  return workload;
}

void RunEverything(Workload (*make)(uint32_t seed)) {
  int64_t finished = 0, preempted = 0, hits = 0;
  constexpr int kSeeds = RandomSeeds(240);
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    RandomRun run(make(seed));
    for (int event = 0; event < 1'500; ++event) {
      run.Event();
      ASSERT_FALSE(testing::Test::HasFatalFailure()) << "event " << event;
    }
    run.Drain();
    ASSERT_FALSE(testing::Test::HasFailure());
    finished += static_cast<int64_t>(run.bench().outputs().size());
    preempted += run.bench().scheduler().preemption_count();
    hits += run.bench().cache().Stats().hits;
  }
  EXPECT_GT(finished, 20 * kSeeds);
  EXPECT_GT(preempted, 2 * kSeeds) << "the pools are too large to test preemption";
  EXPECT_GT(hits, 4 * kSeeds);
  testing::Test::RecordProperty("finished", std::to_string(finished));
  testing::Test::RecordProperty("preempted", std::to_string(preempted));
}

TEST(SchedulerRandom, EverySequenceGetsEveryTokenOnceUnderAnyLoad) {
  RunEverything(RandomWorkload);
}

TEST(SchedulerRandom, EverySequenceGetsEveryTokenOnceWithWindowsToo) {
  RunEverything(RandomWorkloadWithWindows);
}

TEST(SchedulerRandom, AMuchTooSmallPoolPreemptsLittleMoreThanNecessary) {
  SchedulerBench bench(Pool(24), Budget(32, 16));
  for (uint64_t id = 1; id <= 100; ++id) {
    ASSERT_TRUE(bench.Add(id, Prompt(16, static_cast<TokenId>(id)), 48).ok());
  }
  int64_t computed = 0;
  while (bench.scheduler().has_work()) computed += bench.Step().total_tokens;
  EXPECT_EQ(bench.outputs().size(), 100u);
  bench.ExpectAllCorrect();
  const int64_t least = 100 * (16 + 47);
  EXPECT_LE(bench.scheduler().preemption_count(), 300);
  EXPECT_LE(computed, 2 * least);
}

}  // namespace
}  // namespace baton
