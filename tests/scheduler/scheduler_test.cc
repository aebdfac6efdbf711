#include "scheduler/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>

#include "tests/scheduler/fake_model.h"

namespace baton {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr CacheNamespace kSpace{1};

// An engine of the smallest kind: schedule, compute, commit, append, finish at max_tokens.
class Bench {
 public:
  Bench(const KvCacheOptions& pool, const SchedulerOptions& options)
      : cache_(pool, &clock_), scheduler_(options, &cache_), model_(&cache_) {}

  SequenceSpec Spec(uint64_t id, std::vector<TokenId> prompt, int32_t generate,
                    int32_t priority = 0, CacheNamespace space = kSpace) {
    SequenceSpec spec{.id = SequenceId(id),
                      .tokens = std::move(prompt),
                      .cache_namespace = space,
                      .max_tokens = 0,
                      .priority = priority};
    spec.max_tokens = static_cast<int32_t>(spec.tokens.size()) + generate;
    specs_[spec.id] = spec;
    return spec;
  }
  absl::Status Add(uint64_t id, std::vector<TokenId> prompt, int32_t generate,
                   int32_t priority = 0) {
    return scheduler_.Add(Spec(id, std::move(prompt), generate, priority));
  }

  SchedulerOutput Step() {
    SchedulerOutput output = scheduler_.Schedule();
    CheckOutput(output);
    std::map<SequenceId, TokenId> sampled;
    for (const ScheduledChunk& chunk : output.chunks) {
      const TokenId next = model_.Compute(chunk.id, specs_[chunk.id].cache_namespace,
                                          scheduler_.tokens(chunk.id), chunk.begin, chunk.count);
      if (chunk.samples) sampled[chunk.id] = next;
    }
    scheduler_.CommitStep(output);
    for (const auto& [id, token] : sampled) Append(id, token);
    for (const SequenceId id : output.exhausted) Finish(id);
    CheckState();
    return output;
  }
  void Append(SequenceId id, TokenId token) {
    scheduler_.AppendToken(id, token);
    if (static_cast<int32_t>(scheduler_.tokens(id).size()) == specs_[id].max_tokens) Finish(id);
  }
  void Finish(SequenceId id) {
    const auto tokens = scheduler_.tokens(id);
    outputs_[id].assign(tokens.begin() + specs_[id].tokens.size(), tokens.end());
    scheduler_.Finish(id, /*keep_cached=*/true);
  }
  void Cancel(SequenceId id) { scheduler_.Finish(id, /*keep_cached=*/id.value() % 2 == 0); }

  // The peer has computed the KV of slots [matched, committed), and the first token if that is all.
  void KvArrives(SequenceId id, int32_t committed) {
    const auto tokens = scheduler_.tokens(id);
    const int32_t matched = cache_.committed(id);
    std::optional<TokenId> first;
    if (committed > matched) {
      first = model_.Compute(id, specs_[id].cache_namespace, tokens, matched, committed - matched);
    }
    const bool whole = committed == static_cast<int32_t>(tokens.size());
    scheduler_.KvArrived(id, committed);
    if (whole) Append(id, *first);
  }

  void ExpectTokens(uint64_t id, int32_t generate) {
    const SequenceSpec& spec = specs_[SequenceId(id)];
    EXPECT_EQ(outputs_[SequenceId(id)],
              FakeModel::Continuation(spec.cache_namespace, spec.tokens,
                                      static_cast<int32_t>(spec.tokens.size()) + generate))
        << "sequence " << id;
  }
  void ExpectAllCorrect() {
    for (const auto& [id, output] : outputs_) {
      ExpectTokens(id.value(), static_cast<int32_t>(output.size()));
    }
  }

  KvCacheManager& cache() { return cache_; }
  Scheduler& scheduler() { return scheduler_; }
  const std::map<SequenceId, std::vector<TokenId>>& outputs() const { return outputs_; }
  const SequenceSpec& spec(SequenceId id) { return specs_[id]; }
  void set_budget_to_check(int32_t budget) { budget_ = budget; }

 private:
  void CheckOutput(const SchedulerOutput& output) {
    int32_t total = 0;
    std::map<SequenceId, int> seen;
    for (const ScheduledChunk& chunk : output.chunks) {
      EXPECT_EQ(++seen[chunk.id], 1);
      EXPECT_EQ(chunk.begin, cache_.committed(chunk.id));
      EXPECT_GE(chunk.count, 1);
      EXPECT_LE(chunk.begin + chunk.count, cache_.capacity(chunk.id));
      EXPECT_EQ(chunk.samples, chunk.begin + chunk.count ==
                                   static_cast<int32_t>(scheduler_.tokens(chunk.id).size()));
      EXPECT_EQ(scheduler_.phase(chunk.id), SequencePhase::kRunning);
      total += chunk.count;
    }
    for (const SequenceId id : output.preempted) {
      EXPECT_THAT(output.admitted, Not(Contains(id)));
      EXPECT_EQ(scheduler_.phase(id), SequencePhase::kWaiting);
    }
    EXPECT_EQ(total, output.total_tokens);
    EXPECT_LE(total, budget_);
  }
  void CheckState() {
    ASSERT_TRUE(cache_.CheckConservation().ok()) << cache_.CheckConservation();
    for (const auto& [id, spec] : specs_) {
      if (cache_.Contains(id)) model_.ExpectKv(id, spec.cache_namespace, scheduler_.tokens(id));
    }
  }

  ManualClock clock_;
  KvCacheManager cache_;
  Scheduler scheduler_;
  FakeModel model_;
  int32_t budget_ = INT32_MAX;
  std::map<SequenceId, SequenceSpec> specs_;  // by id, the prompts as given
  std::map<SequenceId, std::vector<TokenId>> outputs_;
};

KvCacheOptions Pool(int32_t blocks, int32_t block_size = 4) {
  KvCacheOptions options;
  options.num_blocks = blocks;
  options.block_size = block_size;
  return options;
}

SchedulerOptions Budget(int32_t tokens, int32_t max_running = 64) {
  SchedulerOptions options;
  options.token_budget = options.max_chunk_tokens = tokens;
  options.max_running = max_running;
  return options;
}

std::vector<TokenId> Prompt(int32_t length, TokenId first = 0) {
  std::vector<TokenId> tokens(length);
  for (int32_t i = 0; i < length; ++i) tokens[i] = first + i % 40;
  return tokens;
}

TEST(Scheduler, PrefillsInChunksThenDecodesOneByOne) {
  Bench bench(Pool(32), Budget(8));
  ASSERT_TRUE(bench.Add(1, Prompt(20), 3).ok());
  EXPECT_EQ(bench.scheduler().phase(SequenceId(1)), SequencePhase::kWaiting);
  std::vector<int32_t> counts;
  while (bench.scheduler().has_work()) counts.push_back(bench.Step().total_tokens);
  EXPECT_THAT(counts, ElementsAre(8, 8, 4, 1, 1));
  bench.ExpectTokens(1, 3);
  EXPECT_FALSE(bench.scheduler().Contains(SequenceId(1)));
}

TEST(Scheduler, ShortPromptsPassAnEightThousandTokenPrefill) {
  Bench bench(Pool(1200, 16), Budget(512));
  ASSERT_TRUE(bench.Add(1, Prompt(8000), 2).ok());
  uint64_t next = 2;
  while (!bench.outputs().contains(SequenceId(1))) {
    ASSERT_TRUE(bench.Add(next, Prompt(50, 100 + static_cast<TokenId>(next)), 1).ok());
    bench.Step();
    EXPECT_TRUE(bench.outputs().contains(SequenceId(next))) << "first token in its first step";
    ++next;
  }
  EXPECT_LE(next, 22u) << "and the long one is done in 8000 / (512 - 50) steps and one";
  bench.ExpectAllCorrect();
}

TEST(Scheduler, DecodesKeepTheirRowDuringAPrefill) {
  Bench bench(Pool(400), Budget(16));
  ASSERT_TRUE(bench.Add(1, Prompt(5), 200).ok());
  bench.Step();
  ASSERT_TRUE(bench.Add(2, Prompt(300, 7), 1).ok());
  for (int i = 0; i < 20; ++i) {
    const SchedulerOutput output = bench.Step();
    ASSERT_EQ(output.chunks.size(), 2u);
    EXPECT_EQ(output.chunks[0].id, SequenceId(1));
    EXPECT_EQ(output.chunks[0].count, 1);
    EXPECT_EQ(output.chunks[1].count, 15);
  }
}

TEST(Scheduler, AFinishedSequenceStaysCachedAndAFollowUpComputesOnlyWhatIsNew) {
  Bench bench(Pool(64), Budget(64));
  ASSERT_TRUE(bench.Add(1, Prompt(30), 11).ok());
  while (bench.scheduler().has_work()) bench.Step();
  std::vector<TokenId> turn_two = Prompt(30);
  const auto& answer = bench.outputs().at(SequenceId(1));
  turn_two.insert(turn_two.end(), answer.begin(), answer.end());
  turn_two.insert(turn_two.end(), {1, 2, 3});
  ASSERT_TRUE(bench.Add(2, turn_two, 2).ok());
  const SchedulerOutput output = bench.Step();
  ASSERT_EQ(output.chunks.size(), 1u);
  EXPECT_EQ(output.chunks[0].begin, 40) << "30 + 11 tokens, the last one was never fed";
  EXPECT_EQ(output.chunks[0].count, 4);
}

TEST(Scheduler, AWhollyCachedPromptStillComputesItsLastBlock) {
  for (const int32_t length : {7, 8, 9}) {
    Bench bench(Pool(64), Budget(64));
    ASSERT_TRUE(bench.Add(1, Prompt(length), 4).ok());
    while (bench.scheduler().has_work()) bench.Step();
    ASSERT_TRUE(bench.Add(2, Prompt(length), 4).ok());
    EXPECT_EQ(bench.Step().chunks.at(0).begin, (length - 1) / 4 * 4) << length;
    while (bench.scheduler().has_work()) bench.Step();
    bench.ExpectTokens(2, 4);
  }
}

TEST(Scheduler, RefusalsCarryBothNumbers) {
  SchedulerOptions options = Budget(8);
  options.max_waiting = 1;
  Bench bench(Pool(4), options);
  EXPECT_THAT(bench.Add(1, Prompt(17), 1).ToString(),
              AllOf(HasSubstr("INVALID_ARGUMENT"), HasSubstr("5 blocks"), HasSubstr("has 4")));
  EXPECT_THAT(bench.Add(1, {}, 1).ToString(), HasSubstr("no tokens"));
  EXPECT_THAT(bench.Add(1, Prompt(8), -1).ToString(),
              AllOf(HasSubstr("8 tokens"), HasSubstr("max_tokens 7")));
  ASSERT_TRUE(bench.Add(1, Prompt(16), 1).ok());
  EXPECT_THAT(bench.Add(2, Prompt(4), 1).ToString(),
              AllOf(HasSubstr("RESOURCE_EXHAUSTED"), HasSubstr("at most 1")));
}

TEST(Scheduler, ASequenceAloneThatCannotGrowIsExhausted) {
  Bench bench(Pool(4), Budget(64));
  ASSERT_TRUE(bench.Add(1, Prompt(10), 100).ok());
  SchedulerOutput output;
  for (int i = 0; i < 20 && output.exhausted.empty(); ++i) output = bench.Step();
  EXPECT_THAT(output.exhausted, ElementsAre(SequenceId(1)));
  bench.ExpectTokens(1, 7);
  EXPECT_FALSE(bench.scheduler().has_work());
}

TEST(Scheduler, ATokenPastMaxTokensMakesASequenceExhausted) {
  Bench bench(Pool(8), Budget(64));
  ASSERT_TRUE(bench.Add(1, Prompt(4), 1).ok());
  const SchedulerOutput first = bench.scheduler().Schedule();
  bench.scheduler().CommitStep(first);
  bench.scheduler().AppendToken(SequenceId(1), 5);
  bench.scheduler().CommitStep(bench.scheduler().Schedule());
  bench.scheduler().AppendToken(SequenceId(1), 6);
  EXPECT_THAT(bench.scheduler().Schedule().exhausted, ElementsAre(SequenceId(1)));
}

TEST(Scheduler, TheVictimIsTheLowestPriorityThenTheLatest) {
  Bench bench(Pool(10), Budget(64));
  ASSERT_TRUE(bench.Add(1, Prompt(8, 100), 16, /*priority=*/0).ok());
  ASSERT_TRUE(bench.Add(2, Prompt(8, 200), 16, /*priority=*/1).ok());
  ASSERT_TRUE(bench.Add(3, Prompt(8, 300), 16, /*priority=*/0).ok());
  std::vector<SequenceId> preempted;
  while (bench.scheduler().has_work()) {
    const SchedulerOutput output = bench.Step();
    preempted.insert(preempted.end(), output.preempted.begin(), output.preempted.end());
  }
  ASSERT_GE(preempted.size(), 2u);
  EXPECT_EQ(preempted[0], SequenceId(3));
  EXPECT_THAT(preempted, Not(Contains(SequenceId(2))));
  EXPECT_EQ(bench.scheduler().preemption_count(), static_cast<int64_t>(preempted.size()));
  for (const uint64_t id : {1, 2, 3}) bench.ExpectTokens(id, 16);
}

TEST(Scheduler, APreemptedSequenceResumesBeforeNewerOnesAndSaysTheSame) {
  Bench bench(Pool(8), Budget(64));
  ASSERT_TRUE(bench.Add(1, Prompt(8, 100), 20).ok());
  ASSERT_TRUE(bench.Add(2, Prompt(8, 200), 20).ok());
  bench.Step();
  ASSERT_TRUE(bench.Add(3, Prompt(8, 300), 2).ok());
  std::vector<SequenceId> admitted;
  while (bench.scheduler().has_work()) {
    const SchedulerOutput output = bench.Step();
    admitted.insert(admitted.end(), output.admitted.begin(), output.admitted.end());
  }
  const auto resumed = std::find(admitted.begin(), admitted.end(), SequenceId(2));
  EXPECT_NE(resumed, admitted.end()) << "2 was preempted, and came back";
  EXPECT_LT(resumed, std::find(admitted.begin(), admitted.end(), SequenceId(3)));
  bench.ExpectTokens(1, 20);
  bench.ExpectTokens(2, 20);
  bench.ExpectTokens(3, 2);
}

TEST(Scheduler, AHigherPriorityIsAdmittedFirst) {
  Bench bench(Pool(64), Budget(8, /*max_running=*/1));
  ASSERT_TRUE(bench.Add(1, Prompt(8), 1, 0).ok());
  ASSERT_TRUE(bench.Add(2, Prompt(8, 9), 1, 5).ok());
  EXPECT_THAT(bench.Step().admitted, ElementsAre(SequenceId(2)));
}

TEST(Scheduler, NobodyPassesAHeadThatWaitsForBlocks) {
  Bench bench(Pool(10), Budget(64));
  ASSERT_TRUE(bench.Add(1, Prompt(16), 8).ok());
  bench.Step();
  ASSERT_TRUE(bench.Add(2, Prompt(32, 100), 1).ok());
  ASSERT_TRUE(bench.Add(3, Prompt(4, 200), 1).ok());
  while (!bench.outputs().contains(SequenceId(1))) EXPECT_THAT(bench.Step().admitted, IsEmpty());
  EXPECT_THAT(bench.Step().admitted, Contains(SequenceId(2)));
}

// Contiguous mode: enough blocks are free, but in two runs, so the head waits and everybody with
// it.
TEST(Scheduler, NobodyPassesAHeadThatWaitsForARun) {
  KvCacheOptions pool = Pool(20);
  pool.paged = false;
  pool.prefix_cache = false;
  Bench bench(pool, Budget(64));
  ASSERT_TRUE(bench.Add(1, Prompt(16), 8).ok());       // 6 blocks
  ASSERT_TRUE(bench.Add(2, Prompt(8, 100), 8).ok());   // 4 blocks between them
  ASSERT_TRUE(bench.Add(3, Prompt(16, 200), 8).ok());  // 6 blocks
  EXPECT_EQ(bench.Step().admitted.size(), 3u);
  bench.Cancel(SequenceId(1));
  bench.Cancel(SequenceId(3));
  ASSERT_TRUE(bench.Add(4, Prompt(40, 300), 4).ok());  // 11 blocks, the longest run has 10
  for (const uint64_t id : {5, 6}) ASSERT_TRUE(bench.Add(id, Prompt(3, 400), 1).ok());
  while (!bench.outputs().contains(SequenceId(2))) EXPECT_THAT(bench.Step().admitted, IsEmpty());
  EXPECT_THAT(bench.Step().admitted, Contains(SequenceId(4)));
  while (bench.scheduler().has_work()) bench.Step();
  for (const uint64_t id : {5, 6}) bench.ExpectTokens(id, 1);
  bench.ExpectTokens(4, 4);
}

TEST(Scheduler, AdmissionLeavesABlockForEachSequenceToGrow) {
  for (const int32_t blocks : {8, 9}) {
    Bench bench(Pool(blocks), Budget(64));
    ASSERT_TRUE(bench.Add(1, Prompt(16, 100), 8).ok());
    ASSERT_TRUE(bench.Add(2, Prompt(16, 200), 8).ok());
    EXPECT_EQ(bench.Step().admitted.size(), blocks == 8 ? 1u : 2u);
  }
}

TEST(Scheduler, AHigherPrioritysPrefillGoesBeforeOneInProgress) {
  Bench bench(Pool(400), Budget(64));
  ASSERT_TRUE(bench.Add(1, Prompt(1000), 1, /*priority=*/0).ok());
  bench.Step();
  ASSERT_TRUE(bench.Add(2, Prompt(200, 100), 1, /*priority=*/1).ok());
  const SchedulerOutput output = bench.Step();
  ASSERT_EQ(output.chunks.size(), 1u);
  EXPECT_EQ(output.chunks[0].id, SequenceId(2));
}

TEST(Scheduler, AStepIsCommittedOnce) {
  Bench bench(Pool(16), Budget(8));
  ASSERT_TRUE(bench.Add(1, Prompt(20), 1).ok());
  const SchedulerOutput dropped = bench.scheduler().Schedule();
  const SchedulerOutput again = bench.scheduler().Schedule();
  EXPECT_EQ(again.chunks.at(0).begin, 0);
  bench.scheduler().CommitStep(again);
  bench.scheduler().CommitStep(dropped);
  EXPECT_EQ(bench.cache().committed(SequenceId(1)), 8);
}

TEST(Scheduler, WhatAPreemptedSequenceHadComputedStaysCached) {
  SchedulerOptions options = Budget(64);
  options.insert_chunks = false;
  Bench bench(Pool(8), options);
  ASSERT_TRUE(bench.Add(1, Prompt(8, 100), 20).ok());
  ASSERT_TRUE(bench.Add(2, Prompt(8, 200), 20).ok());
  SchedulerOutput output;
  while (output.preempted.empty()) output = bench.Step();
  const auto units = UnitsFromTokens(bench.scheduler().tokens(SequenceId(2)));
  EXPECT_GT(bench.cache().PeekMatch(kSpace, units), 8);
}

// ---- KV from a peer
// -------------------------------------------------------------------------------

TEST(SchedulerHandOff, ArrivedKvDecodesAtOnce) {
  Bench bench(Pool(16), Budget(64));
  ASSERT_TRUE(bench.scheduler().AddWaitingForKv(bench.Spec(1, Prompt(10), 5)).ok());
  EXPECT_EQ(bench.scheduler().waiting_for_kv_count(), 1);
  EXPECT_EQ(bench.cache().BlockTable(SequenceId(1)).size(), 3u);
  EXPECT_FALSE(bench.scheduler().has_work());
  bench.KvArrives(SequenceId(1), 10);
  const SchedulerOutput output = bench.Step();
  ASSERT_EQ(output.chunks.size(), 1u);
  EXPECT_EQ(output.chunks[0].begin, 10);
  while (bench.scheduler().has_work()) bench.Step();
  bench.ExpectTokens(1, 5);
}

TEST(SchedulerHandOff, WhatDidNotArriveIsComputedHere) {
  for (const int32_t arrived : {0, 3, 4, 9}) {
    Bench bench(Pool(16), Budget(4));
    ASSERT_TRUE(bench.scheduler().AddWaitingForKv(bench.Spec(1, Prompt(10), 5)).ok());
    bench.KvArrives(SequenceId(1), arrived);
    EXPECT_EQ(bench.Step().chunks.at(0).begin, arrived);
    while (bench.scheduler().has_work()) bench.Step();
    bench.ExpectTokens(1, 5);
  }
}

TEST(SchedulerHandOff, ACancelledOneGivesEveryBlockBackOnceItsTransferEnds) {
  Bench bench(Pool(16), Budget(64));
  ASSERT_TRUE(bench.scheduler().AddWaitingForKv(bench.Spec(1, Prompt(10), 5)).ok());
  const auto table = bench.cache().BlockTable(SequenceId(1));
  const std::vector<BlockId> blocks(table.begin(), table.end());
  bench.cache().HoldForTransfer(blocks);
  bench.scheduler().Finish(SequenceId(1), false);
  EXPECT_EQ(bench.cache().available_blocks(), 13);
  bench.cache().ReleaseTransferHold(blocks);
  EXPECT_EQ(bench.cache().available_blocks(), 16);
}

TEST(SchedulerHandOff, RefusesWhenFullAndTakesNothing) {
  Bench bench(Pool(4), Budget(64));
  ASSERT_TRUE(bench.scheduler().AddWaitingForKv(bench.Spec(1, Prompt(10), 2)).ok());
  const absl::Status status = bench.scheduler().AddWaitingForKv(bench.Spec(2, Prompt(4, 9), 2));
  EXPECT_THAT(status.ToString(), AllOf(HasSubstr("RESOURCE_EXHAUSTED"), HasSubstr("1 of 4")));
  EXPECT_FALSE(bench.scheduler().Contains(SequenceId(2)));
  EXPECT_EQ(bench.cache().available_blocks(), 1);
}

TEST(SchedulerHandOff, OneThatWaitsForKvIsNeverPreemptedAndTheOtherWaitsForIt) {
  Bench bench(Pool(8), Budget(64));
  ASSERT_TRUE(bench.Add(1, Prompt(12), 12).ok());
  bench.Step();
  ASSERT_TRUE(bench.scheduler().AddWaitingForKv(bench.Spec(2, Prompt(12, 100), 4)).ok());
  while (bench.scheduler().has_work()) {
    const SchedulerOutput output = bench.Step();
    EXPECT_THAT(output.preempted, IsEmpty());
    EXPECT_THAT(output.exhausted, IsEmpty());
  }
  EXPECT_EQ(bench.scheduler().running_count(), 1) << "it stands, with its blocks";
  bench.KvArrives(SequenceId(2), 12);
  while (bench.scheduler().has_work()) bench.Step();
  bench.ExpectTokens(1, 12);
  bench.ExpectTokens(2, 4);
}

TEST(SchedulerHandOff, APreemptedOneResumesBeforeEarlierArrivalsAndBeforeNewHandOffs) {
  Bench bench(Pool(10), Budget(64));
  ASSERT_TRUE(bench.Add(1, Prompt(16, 100), 12).ok());
  bench.Step();
  ASSERT_TRUE(bench.Add(2, Prompt(32, 200), 1).ok());
  ASSERT_TRUE(bench.scheduler().AddWaitingForKv(bench.Spec(3, Prompt(8, 300), 20)).ok());
  bench.KvArrives(SequenceId(3), 8);
  SchedulerOutput output;
  while (output.preempted.empty()) output = bench.Step();
  EXPECT_THAT(output.preempted, ElementsAre(SequenceId(3)));
  EXPECT_THAT(bench.scheduler().AddWaitingForKv(bench.Spec(4, Prompt(1, 400), 1)).ToString(),
              AllOf(HasSubstr("RESOURCE_EXHAUSTED"), HasSubstr("1 preempted")));
  while (output.admitted.empty()) output = bench.Step();
  EXPECT_EQ(output.admitted[0], SequenceId(3));
  while (bench.scheduler().has_work()) bench.Step();
  bench.ExpectAllCorrect();
}

// ---- random workloads
// -----------------------------------------------------------------------------

struct Workload {
  uint32_t seed;
  KvCacheOptions pool;
  SchedulerOptions options;
};

class RandomRun {
 public:
  explicit RandomRun(const Workload& workload)
      : random_(workload.seed), pool_(workload.pool), bench_(workload.pool, workload.options) {
    bench_.set_budget_to_check(workload.options.token_budget);
  }

  void Arrive() {
    const int32_t most = pool_.num_blocks * pool_.block_size;
    const int32_t length = 1 + random_() % std::min(most, 60);
    // A few beginnings that many share, then a tail of a sequence's own.
    std::vector<TokenId> prompt = Prompt(length, static_cast<TokenId>(random_() % 3));
    const int32_t own = random_() % length;
    for (int32_t i = length - own; i < length; ++i) prompt[i] = random_() % 3;
    const int32_t generate = 1 + random_() % 40;
    const int32_t priority = random_() % 4 == 0 ? 1 : 0;
    const CacheNamespace space(1 + random_() % 2);
    SequenceSpec spec = bench_.Spec(next_, prompt, generate, priority, space);
    const bool hand_off = random_() % 3 == 0;
    const absl::Status status =
        hand_off ? bench_.scheduler().AddWaitingForKv(spec) : bench_.scheduler().Add(spec);
    if (status.ok()) live_.push_back(spec.id);
    if (status.ok() && hand_off) HoldSome(spec.id);
    ++next_;
  }
  // A transfer holds part of a sequence's blocks, and may outlive it.
  void HoldSome(SequenceId id) {
    const auto table = bench_.cache().BlockTable(id);
    holds_.emplace_back(table.begin(), table.begin() + random_() % (table.size() + 1));
    bench_.cache().HoldForTransfer(holds_.back());
  }
  void EndTransfer() {
    if (holds_.empty()) return;
    bench_.cache().ReleaseTransferHold(holds_.back());
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
  // Everybody comes to an end within a number of steps that the work bounds.
  void Drain() {
    while (!holds_.empty()) EndTransfer();
    KvArrives(/*all=*/true);
    const size_t bound = 200 + 2000 * live_.size();
    size_t steps = 0;
    while (bench_.scheduler().has_work()) {
      Step();
      ASSERT_LT(++steps, bound) << live_.size() << " sequences make no progress";
    }
    EXPECT_EQ(bench_.scheduler().waiting_count() + bench_.scheduler().running_count() +
                  bench_.scheduler().waiting_for_kv_count(),
              0);
    bench_.ExpectAllCorrect();
    EXPECT_EQ(bench_.cache().available_blocks(), pool_.num_blocks);
  }
  Bench& bench() { return bench_; }
  int64_t work() const { return work_; }

 private:
  std::mt19937 random_;
  KvCacheOptions pool_;
  Bench bench_;
  uint64_t next_ = 1;
  int64_t work_ = 0;
  std::vector<SequenceId> live_;
  std::vector<std::vector<BlockId>> holds_;
};

Workload RandomWorkload(uint32_t seed) {
  std::mt19937 random(seed);
  Workload workload{.seed = seed, .pool = {}, .options = {}};
  workload.pool.num_blocks = 3 + random() % 40;
  workload.pool.block_size = 1 << random() % 4;
  workload.pool.paged = random() % 6 != 0;
  workload.pool.prefix_cache = workload.pool.paged && random() % 4 != 0;
  workload.pool.min_prefix_tokens = random() % 3 == 0 ? random() % 12 : 0;
  workload.pool.record_trace = true;
  workload.options.token_budget = 1 + random() % 40;
  workload.options.max_chunk_tokens = 1 + random() % 40;
  workload.options.max_running = 1 + random() % 8;
  workload.options.max_waiting = 1 + random() % 20;
  workload.options.insert_chunks = random() % 4 != 0;
  return workload;
}

TEST(SchedulerRandom, EverySequenceGetsEveryTokenOnceWhateverSurroundsIt) {
  int64_t finished = 0, preempted = 0, hits = 0;
  for (uint32_t seed = 1; seed <= 240; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    RandomRun run(RandomWorkload(seed));
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
  EXPECT_GT(finished, 5'000);
  EXPECT_GT(preempted, 500) << "the pools are too large to test preemption";
  EXPECT_GT(hits, 1'000);
  RecordProperty("finished", std::to_string(finished));
  RecordProperty("preempted", std::to_string(preempted));
}

TEST(SchedulerRandom, APoolThatIsMuchTooSmallPreemptsLittleMoreThanItMust) {
  Bench bench(Pool(24), Budget(32, 16));
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
