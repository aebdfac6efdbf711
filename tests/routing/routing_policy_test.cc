#include "routing/routing_policy.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <set>

#include "tests/routing/fleet.h"

namespace baton {
namespace {

class EveryRoutingPolicy : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<RoutingPolicy> Make(RoutingOptions options = {}) const {
    options.policy = GetParam();
    options.seed = 7;
    return MakeRoutingPolicy(options);
  }
};

INSTANTIATE_TEST_SUITE_P(, EveryRoutingPolicy, ::testing::ValuesIn(RoutingPolicyNames()),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

const WorkerRecord* Find(const Fleet& fleet, WorkerNumber number) {
  for (const WorkerRecord& worker : fleet.workers) {
    if (worker.number == number) return &worker;
  }
  return nullptr;
}

// Repair is none or first:16. A prompt with a repair is computed where it is decoded.
bool ShouldTake(const RoutingInput& input, const WorkerRecord& worker, bool hand_over) {
  if (!input.chunk_repair) return true;
  const PromptChunkSupport* const chunks = worker.report.chunks.get();
  const bool repairs = input.chunk_repair->kind == ChunkRepair::Kind::kFirst;
  return chunks != nullptr && chunks->refusal.empty() && (!repairs || chunks->repairs_first) &&
         (!hand_over || (chunks->hands_over && !repairs));
}

bool ShouldDecode(const RoutingInput& input, const WorkerRecord& worker) {
  return ShouldTake(input, worker, /*hand_over=*/false) && !worker.unreachable &&
         !worker.report.draining && worker.report.role != WorkerRole::kPrefill &&
         !input.excluded.contains(worker.number) &&
         (input.fingerprint.empty() || (worker.report.fingerprint == input.fingerprint &&
                                        worker.report.backend == input.backend));
}

bool ShouldPrefill(const RoutingInput& input, const WorkerRecord& decode,
                   const WorkerRecord& worker) {
  return ShouldTake(input, decode, /*hand_over=*/true) &&
         ShouldTake(input, worker, /*hand_over=*/true) && !worker.unreachable &&
         !worker.report.draining && worker.report.role != WorkerRole::kDecode &&
         worker.number != decode.number && MaySend(worker, decode);
}

bool HasPlan(const RoutingInput& input, const Fleet& fleet) {
  for (const WorkerRecord& decode : fleet.workers) {
    if (!ShouldDecode(input, decode)) continue;
    if (input.placement != Placement::kRemote) return true;
    for (const WorkerRecord& prefill : fleet.workers) {
      if (ShouldPrefill(input, decode, prefill)) return true;
    }
  }
  return false;
}

// Makes the prompt a chunked one, and lets workers differ in what they can do with it.
void AddChunks(std::mt19937_64& random, Fleet& fleet, RoutingInput& input) {
  input.chunk_repair = ChunkRepair();
  if (random() % 3 == 0) {
    input.chunk_repair = ChunkRepair{.kind = ChunkRepair::Kind::kFirst, .first_tokens = 16};
  }
  for (WorkerRecord& worker : fleet.workers) {
    if (random() % 6 == 0) continue;
    worker.report.chunks = std::make_shared<const PromptChunkSupport>(
        PromptChunkSupport{.refusal = random() % 6 == 0 ? "windows" : "",
                           .repairs_first = random() % 4 != 0,
                           .hands_over = random() % 4 != 0});
  }
}

TEST_P(EveryRoutingPolicy, ChoosesOnlyEligibleWorkersAndOneWheneverOneExists) {
  const auto policy = Make({.pull_prefixes = true});
  int planned = 0;
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    Fleet fleet = RandomFleet(random, 10);
    RoutingInput input = RandomInput(random, fleet);
    if (seed % 3 == 0) AddChunks(random, fleet, input);
    if (random() % 4 == 0 && !fleet.workers.empty()) {
      const WorkerReport& begun = fleet.workers[random() % fleet.workers.size()].report;
      input.fingerprint = begun.fingerprint;
      input.backend = begun.backend;
    }
    const auto plan = policy->Choose(input, fleet.View());
    ASSERT_EQ(plan.ok(), HasPlan(input, fleet));
    if (!plan.ok()) {
      ASSERT_EQ(plan.status().code(), absl::StatusCode::kUnavailable);
      continue;
    }
    ++planned;
    const WorkerRecord* const decode = Find(fleet, plan->decode);
    ASSERT_NE(decode, nullptr);
    ASSERT_TRUE(ShouldDecode(input, *decode));
    if (plan->prefill) {
      const WorkerRecord* const prefill = Find(fleet, *plan->prefill);
      ASSERT_NE(prefill, nullptr);
      ASSERT_TRUE(ShouldPrefill(input, *decode, *prefill));
    }
    ASSERT_FALSE(plan->prefill && input.placement == Placement::kLocal);
    ASSERT_TRUE(plan->prefill || input.placement != Placement::kRemote);
    ASSERT_GE(plan->work.tokens, 1);
    ASSERT_LE(plan->work.tokens, input.prompt_tokens);
    ASSERT_GE(plan->work.us, 0);
    ASSERT_FALSE(plan->pull && input.chunk_repair) << "pulls bring ordinary prefixes only";
    if (plan->pull) {
      const WorkerRecord* const from = Find(fleet, plan->pull->from);
      ASSERT_NE(from, nullptr);
      ASSERT_TRUE(from->Usable());
      ASSERT_NE(plan->pull->from, plan->prefiller());
      ASSERT_TRUE(MaySend(*from, *Find(fleet, plan->prefiller())));
      ASSERT_LT(plan->pull->tokens, input.prompt_tokens);
      ASSERT_LE(plan->pull->tokens, input.cached_tokens.at(plan->pull->from));
    }
  }
  EXPECT_GT(planned, 500);
}

TEST_P(EveryRoutingPolicy, TheSameInputsInTheSameOrderGiveTheSamePlans) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const auto one = Make();
    const auto two = Make();
    std::mt19937_64 random(seed);
    for (int i = 0; i < 20; ++i) {
      const Fleet fleet = RandomFleet(random, 10);
      const RoutingInput input = RandomInput(random, fleet);
      const auto a = one->Choose(input, fleet.View());
      const auto b = two->Choose(input, fleet.View());
      ASSERT_EQ(a.ok(), b.ok());
      if (!a.ok()) continue;
      ASSERT_EQ(a->decode, b->decode);
      ASSERT_EQ(a->prefill, b->prefill);
    }
  }
}

// Prompts of many users that no worker has cached.
TEST_P(EveryRoutingPolicy, ABurstOfColdPromptsUsesEveryWorker) {
  const auto policy = Make();
  Fleet fleet;
  for (int i = 0; i < 4; ++i) fleet.Add(WorkerRole::kPrefill);
  for (int i = 0; i < 4; ++i) fleet.Add(WorkerRole::kDecode);
  for (int i = 0; i < 80; ++i) {
    RoutingInput input{.prompt_tokens = 1000, .cached_tokens = {}, .excluded = {}};
    input.placement = Placement::kRemote;
    input.affinity_key = static_cast<uint64_t>(i);
    fleet.Send(*policy->Choose(input, fleet.View()));
  }
  for (const WorkerRecord& worker : fleet.workers) {
    EXPECT_GE(worker.assigned, 8) << worker.report.id;
    EXPECT_LE(worker.assigned, 40) << worker.report.id;
  }
}

TEST_P(EveryRoutingPolicy, ShortPromptsAreComputedOnTheDecodeWorker) {
  const auto policy = Make();
  Fleet fleet;
  fleet.Add(WorkerRole::kPrefill);
  fleet.Add(WorkerRole::kDecode);
  RoutingInput input{.prompt_tokens = 16, .cached_tokens = {}, .excluded = {}};
  EXPECT_EQ(policy->Choose(input, fleet.View())->prefill, std::nullopt);
  input.prompt_tokens = 1000;
  EXPECT_EQ(policy->Choose(input, fleet.View())->prefill, WorkerNumber(1));
}

TEST(RoutingPolicy, EveryNameIsUniqueAndTheDefaultComesFirst) {
  const std::vector<std::string>& names = RoutingPolicyNames();
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
  EXPECT_EQ(names.front(), RoutingOptions().policy);
}

}  // namespace
}  // namespace baton
