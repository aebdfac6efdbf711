#include "routing/picking_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "tests/routing/fleet.h"

namespace baton {
namespace {

// Picks the last candidate, and records all candidates.
class LastOffered final : public PickingPolicy {
 public:
  using PickingPolicy::PickingPolicy;
  std::vector<std::vector<uint32_t>> offered;

 protected:
  const WorkerRecord& Pick(WorkerPool, Candidates candidates, const RoutingInput&) override {
    offered.emplace_back();
    for (const WorkerRecord* worker : candidates) offered.back().push_back(worker->number.value());
    return *candidates.back();
  }
};

class PickingPolicyTest : public ::testing::Test {
 protected:
  Fleet fleet_;
  RoutingInput input_{.prompt_tokens = 1000, .cached_tokens = {}, .excluded = {}};
  LastOffered policy_{RoutingOptions()};
};

TEST_F(PickingPolicyTest, OffersDecodeWorkersThenThePrefillWorkersThatFit) {
  fleet_.Add(WorkerRole::kPrefill);
  fleet_.Add(WorkerRole::kPrefill, "g");
  fleet_.Add(WorkerRole::kDecode);
  fleet_.Add(WorkerRole::kDecode, "g");
  const auto plan = policy_.Choose(input_, fleet_.View());
  EXPECT_EQ(policy_.offered, (std::vector<std::vector<uint32_t>>{{3, 4}, {2}}));
  EXPECT_EQ(plan->decode, WorkerNumber(4));
  EXPECT_EQ(plan->prefill, WorkerNumber(2));
}

TEST_F(PickingPolicyTest, ADemandedPrefillWorkerLimitsTheDecodeWorkers) {
  fleet_.Add(WorkerRole::kPrefill);
  fleet_.Add(WorkerRole::kDecode);
  fleet_.Add(WorkerRole::kDecode, "g");
  input_.placement = Placement::kRemote;
  EXPECT_EQ(policy_.Choose(input_, fleet_.View())->decode, WorkerNumber(2));
  input_.excluded.insert(WorkerNumber(2));
  EXPECT_EQ(policy_.Choose(input_, fleet_.View()).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(PickingPolicyTest, AWorkerOfBothRolesPrefillsForItself) {
  fleet_.Add(WorkerRole::kBoth);
  fleet_.Add(WorkerRole::kBoth);
  EXPECT_EQ(policy_.Choose(input_, fleet_.View())->prefill, std::nullopt);
  input_.placement = Placement::kRemote;
  EXPECT_EQ(policy_.Choose(input_, fleet_.View())->prefill, WorkerNumber(1));
}

TEST_F(PickingPolicyTest, OffersExactlyTheDecodeWorkersThatHaveAPrefillWorker) {
  input_.placement = Placement::kRemote;
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const Fleet fleet = RandomFleet(random, 12);
    std::vector<uint32_t> expected;
    for (const WorkerRecord& decode : fleet.workers) {
      const auto may_help = [&](const WorkerRecord& worker) {
        return MayPrefillFor(input_, decode, worker);
      };
      if (MayDecode(input_, decode) && std::ranges::any_of(fleet.workers, may_help)) {
        expected.push_back(decode.number.value());
      }
    }
    policy_.offered.clear();
    EXPECT_EQ(policy_.Choose(input_, fleet.View()).ok(), !expected.empty());
    EXPECT_EQ(policy_.offered.empty() ? std::vector<uint32_t>() : policy_.offered[0], expected);
  }
}

TEST_F(PickingPolicyTest, NeitherAsksNorUsesAPrefillWorkerForALocalPrefill) {
  fleet_.Add(WorkerRole::kPrefill);
  fleet_.Add(WorkerRole::kDecode);
  input_.placement = Placement::kLocal;
  EXPECT_EQ(policy_.Choose(input_, fleet_.View())->prefill, std::nullopt);
  EXPECT_EQ(policy_.offered.size(), 1u);
}

}  // namespace
}  // namespace baton
