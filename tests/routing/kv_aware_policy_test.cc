#include "routing/kv_aware_policy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "tests/routing/fleet.h"

namespace baton {
namespace {

class KvAwarePolicyTest : public ::testing::Test {
 protected:
  WorkerRecord& Add(WorkerRole role, const std::string& fingerprint = "f") {
    return fleet_.Add(role, fingerprint);
  }
  absl::StatusOr<RoutePlan> Choose() {
    return KvAwarePolicy(options_).Choose(input_, fleet_.View());
  }

  RoutingOptions options_{.local_prefill_tokens = 64};
  RoutingInput input_{.prompt_tokens = 1000, .cached_tokens = {}, .excluded = {}};
  Fleet fleet_;
};

TEST_F(KvAwarePolicyTest, WithoutADecodeWorkerNothingIsAvailable) {
  Add(WorkerRole::kPrefill);
  EXPECT_EQ(Choose().status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(KvAwarePolicyTest, ALongPromptGoesToAPrefillWorker) {
  Add(WorkerRole::kPrefill);
  Add(WorkerRole::kDecode);
  const auto plan = Choose();
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->decode, WorkerNumber(2));
  EXPECT_EQ(plan->prefill, WorkerNumber(1));
}

TEST_F(KvAwarePolicyTest, WithoutAPrefillWorkerTheDecodeWorkerPrefills) {
  Add(WorkerRole::kDecode);
  EXPECT_EQ(Choose()->prefill, std::nullopt);
}

TEST_F(KvAwarePolicyTest, TheNextTurnOfAChatIsComputedWhereTheLastOneWasDecoded) {
  Add(WorkerRole::kPrefill);  // 1 holds the last prompt, 2 holds its answer as well
  Add(WorkerRole::kDecode);
  input_.cached_tokens[WorkerNumber(1)] = 400;
  input_.cached_tokens[WorkerNumber(2)] = 488;  // 512 are left
  EXPECT_EQ(Choose()->prefill, std::nullopt);
  input_.cached_tokens[WorkerNumber(2)] = 487;  // too much is left
  EXPECT_EQ(Choose()->prefill, WorkerNumber(1));
  input_.cached_tokens[WorkerNumber(1)] = 500;  // as much as here, and half is here
  input_.cached_tokens[WorkerNumber(2)] = 500;
  EXPECT_EQ(Choose()->prefill, std::nullopt);
  options_.local_continuation_tokens = 600;
  input_.cached_tokens[WorkerNumber(1)] = 499;  // as much, but less than half
  input_.cached_tokens[WorkerNumber(2)] = 499;
  EXPECT_EQ(Choose()->prefill, WorkerNumber(1));
}

TEST_F(KvAwarePolicyTest, ANextTurnStaysWhateverIsThoughtOfTheWorkersSpeeds) {
  Add(WorkerRole::kDecode);
  Add(WorkerRole::kDecode);
  input_.prompt_tokens = 300;
  input_.cached_tokens = {{WorkerNumber(1), 272}};
  // Its prompts took long, by chance; the other one would be done at once.
  for (const auto& [number, us] : {std::pair(1, 4'000'000), std::pair(2, 20'000)}) {
    FinishedRequest finished{.decode = WorkerNumber(number), .prefill = std::nullopt};
    finished.computed_tokens = 200;
    finished.prefill_us = us;
    for (int i = 0; i < 20; ++i) fleet_.speeds.Learn(finished);
  }
  EXPECT_EQ(Choose()->decode, WorkerNumber(1));
  fleet_.At(WorkerNumber(1)).active = 1;  // somebody waits there
  EXPECT_EQ(Choose()->decode, WorkerNumber(2));
}

TEST_F(KvAwarePolicyTest, OnlyEqualFingerprintsArePaired) {
  Add(WorkerRole::kPrefill, "g");
  Add(WorkerRole::kDecode, "f");
  EXPECT_EQ(Choose()->prefill, std::nullopt);
  input_.placement = Placement::kRemote;
  EXPECT_EQ(Choose().status().code(), absl::StatusCode::kUnavailable);
  Add(WorkerRole::kDecode, "g");
  EXPECT_EQ(Choose()->decode, WorkerNumber(3));
  EXPECT_EQ(Choose()->prefill, WorkerNumber(1));
}

TEST_F(KvAwarePolicyTest, PoolsThatAreCutDifferentlyArePairedWhereNothingElseServesBetter) {
  Add(WorkerRole::kPrefill).report.block_size = 32;
  Add(WorkerRole::kPrefill).report.pool_layout = "layer-major";
  Add(WorkerRole::kDecode);
  input_.placement = Placement::kRemote;
  EXPECT_EQ(Choose()->prefill, WorkerNumber(1));
  Add(WorkerRole::kPrefill);
  EXPECT_EQ(Choose()->prefill, WorkerNumber(4)) << "its blocks land whole";
  fleet_.At(WorkerNumber(4)).pending = {.tokens = 1000, .us = 100'000};
  fleet_.At(WorkerNumber(4)).prompts = {{.tokens = 1000, .us = 100'000}};
  fleet_.At(WorkerNumber(4)).prefilling_since_us = fleet_.now_us;
  EXPECT_EQ(Choose()->prefill, WorkerNumber(1)) << "it would be done first";
  Add(WorkerRole::kDecode).report.pool_layout = "layer-major";
  input_.excluded.insert(WorkerNumber(3));
  EXPECT_EQ(Choose()->decode, WorkerNumber(5));
  EXPECT_EQ(Choose()->prefill, WorkerNumber(2));
}

TEST_F(KvAwarePolicyTest, TheDecodeWorkerWithTheLongestPrefixWins) {
  Add(WorkerRole::kDecode);
  Add(WorkerRole::kDecode);
  input_.cached_tokens[WorkerNumber(2)] = 512;
  EXPECT_EQ(Choose()->decode, WorkerNumber(2));
}

TEST_F(KvAwarePolicyTest, LoadOutweighsAShortPrefix) {
  options_.pull_prefixes = false;
  Add(WorkerRole::kDecode);
  Add(WorkerRole::kDecode).others = 40;
  input_.cached_tokens[WorkerNumber(2)] = 512;
  EXPECT_EQ(Choose()->decode, WorkerNumber(1));
  input_.cached_tokens[WorkerNumber(2)] = 960;
  EXPECT_EQ(Choose()->decode, WorkerNumber(2));
  options_.pull_prefixes = true;  // the other one need not compute it
  EXPECT_EQ(Choose()->decode, WorkerNumber(1));
  EXPECT_EQ(Choose()->pull->from, WorkerNumber(2));
}

TEST_F(KvAwarePolicyTest, TheLocalLimitCountsUncachedTokensOfTheChosenWorker) {
  Add(WorkerRole::kPrefill);
  Add(WorkerRole::kDecode);
  input_.cached_tokens[WorkerNumber(1)] = 1000;
  input_.cached_tokens[WorkerNumber(2)] = 1000 - 64;
  EXPECT_EQ(Choose()->prefill, std::nullopt);
  input_.cached_tokens[WorkerNumber(2)] = 1000 - 65;
  EXPECT_EQ(Choose()->prefill, WorkerNumber(1));
}

TEST_F(KvAwarePolicyTest, PlacementOverridesTheLimit) {
  Add(WorkerRole::kPrefill);
  Add(WorkerRole::kDecode);
  input_.placement = Placement::kLocal;
  EXPECT_EQ(Choose()->prefill, std::nullopt);
  input_.placement = Placement::kRemote;
  input_.prompt_tokens = 3;
  EXPECT_EQ(Choose()->prefill, WorkerNumber(1));
}

TEST_F(KvAwarePolicyTest, AFullPoolIsTheLastChoice) {
  Add(WorkerRole::kDecode).report.available_blocks = 10;
  Add(WorkerRole::kDecode).report.queued = 1000;
  EXPECT_EQ(Choose()->decode, WorkerNumber(2));
  input_.excluded.insert(WorkerNumber(2));
  EXPECT_EQ(Choose()->decode, WorkerNumber(1));
}

TEST_F(KvAwarePolicyTest, DrainingUnreachableAndExcludedWorkersAreLeftOut) {
  Add(WorkerRole::kDecode).report.draining = true;
  Add(WorkerRole::kDecode).unreachable = true;
  Add(WorkerRole::kDecode);
  input_.excluded.insert(WorkerNumber(3));
  EXPECT_FALSE(Choose().ok());
  Add(WorkerRole::kDecode);
  EXPECT_EQ(Choose()->decode, WorkerNumber(4));
}

TEST_F(KvAwarePolicyTest, EqualWorkersTakeTurns) {
  Add(WorkerRole::kDecode).assigned = 1;
  Add(WorkerRole::kDecode);
  EXPECT_EQ(Choose()->decode, WorkerNumber(2));
}

TEST_F(KvAwarePolicyTest, ThePrefillWorkerWithThePrefixWins) {
  Add(WorkerRole::kPrefill);
  Add(WorkerRole::kPrefill);
  Add(WorkerRole::kDecode);
  input_.cached_tokens[WorkerNumber(2)] = 480;
  EXPECT_EQ(Choose()->prefill, WorkerNumber(2));
}

TEST_F(KvAwarePolicyTest, AWorkerOfBothRolesDoesNotPrefillForItself) {
  Add(WorkerRole::kBoth);
  EXPECT_EQ(Choose()->decode, WorkerNumber(1));
  EXPECT_EQ(Choose()->prefill, std::nullopt);
}

TEST_F(KvAwarePolicyTest, ABacklogAtThePrefillWorkersMakesTheDecodeWorkerCompute) {
  WorkerRecord& busy = Add(WorkerRole::kPrefill);
  busy.prompts = {{.tokens = 10'000, .us = 5'000'000}};
  busy.pending = busy.prompts[0];
  busy.prefilling_since_us = fleet_.now_us;
  Add(WorkerRole::kDecode);
  EXPECT_EQ(Choose()->prefill, std::nullopt);
  fleet_.now_us += 4'900'000;  // nearly done
  EXPECT_EQ(Choose()->prefill, WorkerNumber(1));
}

TEST_F(KvAwarePolicyTest, TheDecodeWorkerThatLacksLeastIsShippedTo) {
  Add(WorkerRole::kPrefill);
  Add(WorkerRole::kDecode);
  Add(WorkerRole::kDecode);
  input_.prompt_tokens = 4000;
  input_.cached_tokens[WorkerNumber(1)] = 3900;
  input_.cached_tokens[WorkerNumber(3)] = 2000;
  EXPECT_EQ(Choose()->decode, WorkerNumber(3));
  EXPECT_EQ(Choose()->prefill, WorkerNumber(1));
}

TEST_F(KvAwarePolicyTest, ThePlanSaysWhatItsPrefillWillTake) {
  Add(WorkerRole::kPrefill);
  Add(WorkerRole::kDecode);
  input_.cached_tokens[WorkerNumber(1)] = 400;
  const auto plan = Choose();
  EXPECT_EQ(plan->work.tokens, 600);
  EXPECT_EQ(plan->work.us,
            static_cast<int64_t>(fleet_.speeds.Of(WorkerNumber(1)).PrefillUs(400, 1000)));
}

// Cold prompts, all equal or all different: caches know nothing of any.
TEST_F(KvAwarePolicyTest, AColdBurstSpreadsEvenly) {
  for (int i = 0; i < 4; ++i) Add(WorkerRole::kPrefill);
  for (int i = 0; i < 4; ++i) Add(WorkerRole::kDecode);
  input_.placement = Placement::kRemote;
  for (int i = 0; i < 40; ++i) fleet_.Send(*Choose());
  for (const WorkerRecord& worker : fleet_.workers) {
    EXPECT_EQ(worker.assigned, 10) << worker.report.id;
  }
}

TEST_F(KvAwarePolicyTest, AColdBurstSpreadsOverWorkersOfBothRoles) {
  for (int i = 0; i < 8; ++i) Add(WorkerRole::kBoth);
  for (int i = 0; i < 40; ++i) fleet_.Send(*Choose());
  for (const WorkerRecord& worker : fleet_.workers) {
    EXPECT_GE(worker.prompts.size(), 4u) << worker.report.id;
    EXPECT_LE(worker.prompts.size(), 6u) << worker.report.id;
  }
}

TEST_F(KvAwarePolicyTest, ABurstBehindOneHolderSpreadsWhenTheQueueOutlastsComputing) {
  options_.pull_prefixes = false;
  for (int i = 0; i < 4; ++i) Add(WorkerRole::kPrefill);
  Add(WorkerRole::kDecode);
  input_.placement = Placement::kRemote;
  input_.cached_tokens[WorkerNumber(2)] = 900;
  std::set<WorkerNumber> first_five;
  std::set<WorkerNumber> all;
  for (int i = 0; i < 100; ++i) {
    const RoutePlan plan = *Choose();
    fleet_.Send(plan);
    if (i < 5) first_five.insert(*plan.prefill);
    all.insert(*plan.prefill);
  }
  EXPECT_EQ(first_five, std::set<WorkerNumber>{WorkerNumber(2)});
  EXPECT_EQ(all.size(), 4u);
  EXPECT_GT(fleet_.At(WorkerNumber(2)).assigned, 40);  // and the holder still does most
}

TEST_F(KvAwarePolicyTest, ABurstBehindOneHolderSpreadsAtOnceWhereThePrefixCanBePulled) {
  for (int i = 0; i < 4; ++i) Add(WorkerRole::kPrefill);
  Add(WorkerRole::kDecode);
  input_.placement = Placement::kRemote;
  input_.cached_tokens[WorkerNumber(2)] = 900;
  for (int i = 0; i < 40; ++i) {
    const RoutePlan plan = *Choose();
    EXPECT_EQ(plan.pull.has_value(), plan.prefill != WorkerNumber(2));
    fleet_.Send(plan);
  }
  for (uint32_t prefill = 1; prefill <= 4; ++prefill) {
    EXPECT_GE(fleet_.At(WorkerNumber(prefill)).assigned, 8);
  }
}

// A prefix that everybody asks for, with caches that remember: as its holder saturates, others come
// to hold it, until all of them serve it.
TEST_F(KvAwarePolicyTest, AHotPrefixReplicatesWhenItsHolderSaturates) {
  for (int i = 0; i < 4; ++i) Add(WorkerRole::kPrefill);
  Add(WorkerRole::kDecode);
  input_.placement = Placement::kRemote;
  input_.prompt_tokens = 2000;
  input_.cached_tokens[WorkerNumber(1)] = 1900;
  for (int i = 0; i < 400; ++i) {
    const RoutePlan plan = *Choose();
    fleet_.Send(plan);
    if (i % 2 == 0) continue;
    // Requests come twice as fast as a worker with the prefix would be done with them.
    for (WorkerRecord& worker : fleet_.workers) {
      if (worker.prompts.empty()) continue;
      worker.pending.us -= worker.prompts[0].us;
      worker.pending.tokens -= worker.prompts[0].tokens;
      worker.prompts.erase(worker.prompts.begin());
      input_.cached_tokens[worker.number] = 1900;
    }
  }
  std::set<WorkerNumber> holders;
  for (const auto& [number, tokens] : input_.cached_tokens) holders.insert(number);
  EXPECT_GE(holders.size(), 2u);
  EXPECT_LE(fleet_.At(WorkerNumber(1)).prompts.size(), 20u);
}

TEST_F(KvAwarePolicyTest, APullIsNamedOnlyWhenAllowedAndCheaperThanComputing) {
  Add(WorkerRole::kPrefill);
  Add(WorkerRole::kDecode);
  input_.prompt_tokens = 4000;
  input_.placement = Placement::kRemote;
  input_.cached_tokens[WorkerNumber(2)] = 3000;
  options_.pull_prefixes = false;
  EXPECT_EQ(Choose()->pull, std::nullopt);
  options_.pull_prefixes = true;
  const auto plan = Choose();
  ASSERT_TRUE(plan->pull.has_value());
  EXPECT_EQ(plan->pull->from, WorkerNumber(2));
  EXPECT_EQ(plan->pull->tokens, 3000);
  EXPECT_LT(plan->work.us, fleet_.speeds.Of(WorkerNumber(1)).PrefillUs(0, 4000) / 2);
  input_.cached_tokens[WorkerNumber(2)] = 8;  // not worth a call
  EXPECT_EQ(Choose()->pull, std::nullopt);
  input_.cached_tokens[WorkerNumber(2)] = 3000;
  fleet_.At(WorkerNumber(2)).report.fingerprint = "g";
  Add(WorkerRole::kDecode);
  EXPECT_EQ(Choose()->pull, std::nullopt);
}

// ---- against a naive model ----------------------------------------------------------------------

// The documented cost, written out pair by pair.
class NaiveCost {
 public:
  NaiveCost(const RoutingOptions& options, const RoutingInput& input, const Fleet& fleet)
      : options_(options), input_(input), fleet_(fleet) {}

  double Of(const WorkerRecord& decode, const WorkerRecord* prefill, bool charged) const {
    const WorkerSpeeds& speeds = fleet_.speeds.Of(decode.number);
    double us = options_.decode_weight * fleet_.speeds.completion_tokens() *
                speeds.StepUs(decode.active + decode.others + 1);
    us += Room(decode);
    if (prefill == nullptr) {
      const Way way = WayOn(decode);
      return us + Backlog(decode) + way.cost +
             (charged ? options_.local_prefill_penalty * way.computing : 0);
    }
    return us + Prefill(*prefill) +
           speeds.TransferUs(Lacks(decode) * decode.report.kv_bytes_per_token) + speeds.HandOffUs();
  }
  double Prefill(const WorkerRecord& worker) const {
    const double us = Room(worker) + Backlog(worker) + WayOn(worker).cost;
    return worker.report.role == WorkerRole::kPrefill
               ? us + worker.others * fleet_.speeds.prefill_us()
               : us;
  }
  // The prompt is a next turn of what lies on `decode`.
  bool Continues(const WorkerRecord& decode, const WorkerRecord& prefill) const {
    const int64_t here = Lacks(decode);
    const int64_t there = Lacks(prefill);
    return here <= options_.local_continuation_tokens &&
           (here < there || (here == there && 2 * here <= input_.prompt_tokens));
  }
  double Backlog(const WorkerRecord& worker) const {
    double us = 0;
    for (const PrefillWork& work : worker.prompts) us += static_cast<double>(work.us);
    if (worker.prompts.empty()) return 0;
    const auto elapsed = static_cast<double>(fleet_.now_us - worker.prefilling_since_us);
    return us - std::min(elapsed, static_cast<double>(worker.prompts[0].us));
  }
  int64_t Lacks(const WorkerRecord& worker) const {
    const auto found = input_.cached_tokens.find(worker.number);
    const int32_t cached = found == input_.cached_tokens.end() ? 0 : found->second;
    return input_.prompt_tokens - std::min(cached, input_.prompt_tokens - 1);
  }

 private:
  // Weighted: computing all that is missing, or pulling from who has most and computing the rest.
  struct Way {
    double cost;
    double computing;
  };
  Way WayOn(const WorkerRecord& worker) const {
    const WorkerSpeeds& speeds = fleet_.speeds.Of(worker.number);
    const auto computing = [&](int64_t lacks) {
      return options_.compute_weight *
             speeds.PrefillUs(input_.prompt_tokens - lacks, input_.prompt_tokens);
    };
    const Way alone{computing(Lacks(worker)), computing(Lacks(worker))};
    const WorkerRecord* source = nullptr;
    const auto key = [this](const WorkerRecord& one) {
      return std::tuple(Lacks(one), one.active + one.others, one.number);
    };
    for (const WorkerRecord& one : fleet_.workers) {
      if (!one.Usable() || one.number == worker.number || Lacks(one) >= Lacks(worker)) continue;
      if (one.report.fingerprint != worker.report.fingerprint) continue;
      if (source == nullptr || key(one) < key(*source)) source = &one;
    }
    if (source == nullptr) return alone;
    const int64_t tokens = Lacks(worker) - Lacks(*source);
    const double pull_us =
        speeds.TransferUs(tokens * worker.report.kv_bytes_per_token) + speeds.PullUs();
    const Way pulling{options_.pull_weight * std::floor(pull_us) + computing(Lacks(*source)),
                      computing(Lacks(*source))};
    return pulling.cost < alone.cost ? pulling : alone;
  }
  double Room(const WorkerRecord& worker) const {
    return worker.report.available_blocks * worker.report.block_size < Lacks(worker) ? 3e14 : 0;
  }

  const RoutingOptions& options_;
  const RoutingInput& input_;
  const Fleet& fleet_;
};

// The least cost over all plans that the rules allow; infinite when there are none.
double LeastCost(const RoutingOptions& options, const RoutingInput& input, const Fleet& fleet) {
  const NaiveCost cost(options, input, fleet);
  double least = std::numeric_limits<double>::infinity();
  for (const WorkerRecord& decode : fleet.workers) {
    if (!decode.Usable() || !decode.CanDecode() || input.excluded.contains(decode.number)) continue;
    const int64_t here = cost.Lacks(decode);
    const WorkerRecord* partner = nullptr;
    for (const WorkerRecord& prefill : fleet.workers) {
      if (!prefill.Usable() || !prefill.CanPrefill() || prefill.number == decode.number ||
          prefill.report.fingerprint != decode.report.fingerprint ||
          input.placement == Placement::kLocal) {
        continue;
      }
      const auto key = [&](const WorkerRecord& worker) {
        return std::tuple(cost.Of(decode, &worker, false), worker.assigned, worker.number);
      };
      if (partner == nullptr || key(prefill) < key(*partner)) partner = &prefill;
    }
    if (partner == nullptr && input.placement == Placement::kRemote) continue;
    const double remote = partner == nullptr ? std::numeric_limits<double>::infinity()
                                             : cost.Of(decode, partner, false);
    const bool charged = partner != nullptr && decode.report.role == WorkerRole::kDecode &&
                         !cost.Continues(decode, *partner);
    const double local = cost.Of(decode, nullptr, charged);
    // A next turn stays, unless the wait there is longer than all that the partner would do.
    const bool stays = partner != nullptr && cost.Continues(decode, *partner) &&
                       cost.Backlog(decode) <= cost.Prefill(*partner);
    if (input.placement == Placement::kRemote) {
      least = std::min(least, remote);
    } else if (here <= options.local_prefill_tokens || stays) {
      least = std::min(least, local);
    } else {
      least = std::min({least, local, remote});
    }
  }
  return least;
}

TEST(KvAwarePolicy, FindsThePlanOfLeastCostAmongAll) {
  int planned = 0;
  int remote = 0;
  int stayed = 0;
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    const Fleet fleet = RandomFleet(random, 8);
    const RoutingInput input = RandomInput(random, fleet);
    const RoutingOptions options;
    const auto plan = KvAwarePolicy(options).Choose(input, fleet.View());
    const double least = LeastCost(options, input, fleet);
    ASSERT_EQ(plan.ok(), !std::isinf(least));
    if (!plan.ok()) continue;
    ++planned;
    remote += plan->prefill ? 1 : 0;
    // Its cost by the naive model, charged or not.
    const NaiveCost cost(options, input, fleet);
    Fleet copy = fleet;
    const WorkerRecord& decode = copy.At(plan->decode);
    const WorkerRecord* prefill = plan->prefill ? &copy.At(*plan->prefill) : nullptr;
    const double uncharged = cost.Of(decode, prefill, false);
    const double charged = cost.Of(decode, prefill, true);
    const double slack = 1e-9 * least;
    const int64_t lacks = cost.Lacks(decode);
    if (lacks <= options.local_continuation_tokens && 2 * lacks <= input.prompt_tokens) {
      ++stayed;  // a next turn, whatever speeds are known
      continue;
    }
    ASSERT_TRUE(std::abs(uncharged - least) <= slack || std::abs(charged - least) <= slack)
        << uncharged << ", " << charged << ", least " << least;
  }
  EXPECT_GT(planned, 1000);
  EXPECT_GT(remote, 300);
  EXPECT_LT(stayed, planned / 2);
}

}  // namespace
}  // namespace baton
