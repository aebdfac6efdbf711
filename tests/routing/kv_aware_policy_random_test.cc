// Plans for random fleets, compared with a naive model of every plan's cost.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <tuple>

#include "routing/kv_aware_policy.h"
#include "tests/routing/fleet.h"

namespace baton {
namespace {

// The documented cost, computed pair by pair.
class NaiveCost {
 public:
  NaiveCost(const RoutingOptions& options, const RoutingInput& input, const Fleet& fleet)
      : options_(options), input_(input), fleet_(fleet) {
    bool any_prefills = false;
    for (const WorkerRecord& worker : fleet.workers) any_prefills |= worker.CanPrefill();
    for (const WorkerRecord& worker : fleet.workers) {
      if (!worker.Usable() || (any_prefills && !worker.CanPrefill())) continue;
      least_lacking_ = std::min(least_lacking_, Lacks(worker));
    }
    if (least_lacking_ >= input.prompt_tokens || input.held_prefix == 0) return;
    sharers_ = std::numeric_limits<int>::max();
    for (const WorkerRecord& worker : fleet.workers) {
      if (!worker.Usable() || (any_prefills && !worker.CanPrefill())) continue;
      if (Lacks(worker) != least_lacking_) continue;
      int waiting = 0;
      for (const PrefillWork& work : worker.prompts) waiting += work.prefix == input.held_prefix;
      sharers_ = std::min(sharers_, waiting);
    }
  }

  double Of(const WorkerRecord& decode, const WorkerRecord* prefill, bool charged) const {
    const WorkerThroughput& speeds = fleet_.speeds.Of(decode.number);
    double us = options_.decode_weight * fleet_.speeds.completion_tokens() *
                speeds.StepUs(decode.active + decode.others + 1);
    us += Room(decode);
    if (prefill == nullptr) {
      const Way way = WayOn(decode);
      return us + Backlog(decode) + way.cost + Delay(decode) +
             (charged ? options_.local_prefill_penalty * way.computing : 0);
    }
    return us + Prefill(*prefill) +
           speeds.TransferUs(Lacks(decode) * decode.report.kv_bytes_per_token) + speeds.HandOffUs();
  }
  double Prefill(const WorkerRecord& worker) const {
    const double us = Room(worker) + Backlog(worker) + WayOn(worker).cost +
                      (worker.report.role == WorkerRole::kPrefill ? 0 : Delay(worker));
    return worker.report.role == WorkerRole::kPrefill
               ? us + worker.others * fleet_.speeds.prefill_us()
               : us;
  }
  // True if the prompt is a next turn of a conversation cached on `decode`.
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
  // Weighted cost: compute all missing tokens, or pull from the best holder and compute the rest.
  struct Way {
    double cost;
    double computing;
  };
  Way WayOn(const WorkerRecord& worker) const {
    const WorkerThroughput& speeds = fleet_.speeds.Of(worker.number);
    const auto computing = [&](int64_t lacks) {
      return options_.compute_weight *
             speeds.PrefillUs(input_.prompt_tokens - lacks, input_.prompt_tokens);
    };
    // All prompts that wait for a prefix share the cost of its second copy.
    const auto shared = [&](Way way) {
      if (Lacks(worker) <= least_lacking_) return way;
      const double own = std::min(way.cost, computing(least_lacking_));
      way.cost = own + (way.cost - own) / (1 + sharers_);
      return way;
    };
    const Way alone{computing(Lacks(worker)), computing(Lacks(worker))};
    const WorkerRecord* source = nullptr;
    const auto key = [this](const WorkerRecord& one) {
      return std::tuple(Lacks(one), one.active + one.others, one.number);
    };
    for (const WorkerRecord& one : fleet_.workers) {
      if (!one.Usable() || one.number == worker.number || Lacks(one) >= Lacks(worker)) continue;
      if (!MaySend(one, worker)) continue;
      if (source == nullptr || key(one) < key(*source)) source = &one;
    }
    if (source == nullptr) return shared(alone);
    const int64_t tokens = Lacks(worker) - Lacks(*source);
    const double pull_us =
        speeds.TransferUs(tokens * worker.report.kv_bytes_per_token) + speeds.PullUs();
    const Way pulling{options_.pull_weight * std::floor(pull_us) + computing(Lacks(*source)),
                      computing(Lacks(*source))};
    return shared(pulling.cost < alone.cost ? pulling : alone);
  }
  // Every request there that is not a prompt to compute is an answer, which waits meanwhile.
  double Delay(const WorkerRecord& worker) const {
    const double requests = worker.active + worker.others;
    const double answers = std::max(0.0, requests - static_cast<double>(worker.prompts.size()));
    return options_.answer_delay_weight * answers * WayOn(worker).computing /
           options_.compute_weight;
  }
  double Room(const WorkerRecord& worker) const {
    return worker.report.available_blocks * worker.report.block_size < Lacks(worker) ? 3e14 : 0;
  }

  const RoutingOptions& options_;
  const RoutingInput& input_;
  const Fleet& fleet_;
  int64_t least_lacking_ = std::numeric_limits<int64_t>::max();
  int sharers_ = 0;  // waiting prompts with the same held prefix, on its best holder
};

// The least cost of all permitted plans; infinite if there are none.
double LeastCost(const RoutingOptions& options, const RoutingInput& input, const Fleet& fleet) {
  const NaiveCost cost(options, input, fleet);
  double least = std::numeric_limits<double>::infinity();
  for (const WorkerRecord& decode : fleet.workers) {
    if (!decode.Usable() || !decode.CanDecode() || input.excluded.contains(decode.number)) continue;
    const int64_t here = cost.Lacks(decode);
    const WorkerRecord* partner = nullptr;
    for (const WorkerRecord& prefill : fleet.workers) {
      if (!prefill.Usable() || !prefill.CanPrefill() || prefill.number == decode.number ||
          !MaySend(prefill, decode) || input.placement == Placement::kLocal) {
        continue;
      }
      const auto key = [&](const WorkerRecord& worker) {
        return std::tuple(cost.Of(decode, &worker, false),
                          worker.report.block_size != decode.report.block_size, worker.assigned,
                          worker.number);
      };
      if (partner == nullptr || key(prefill) < key(*partner)) partner = &prefill;
    }
    if (partner == nullptr && input.placement == Placement::kRemote) continue;
    const double remote = partner == nullptr ? std::numeric_limits<double>::infinity()
                                             : cost.Of(decode, partner, false);
    const bool charged = partner != nullptr && decode.report.role == WorkerRole::kDecode &&
                         !cost.Continues(decode, *partner);
    const double local = cost.Of(decode, nullptr, charged);
    // A next turn stays, unless the wait there is longer than the partner's whole prefill.
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
    // Cost of the plan in the naive model, with and without the penalty.
    const NaiveCost cost(options, input, fleet);
    Fleet copy = fleet;
    const WorkerRecord& decode = copy.At(plan->decode);
    const WorkerRecord* prefill = plan->prefill ? &copy.At(*plan->prefill) : nullptr;
    const double uncharged = cost.Of(decode, prefill, false);
    const double charged = cost.Of(decode, prefill, true);
    const double slack = 1e-9 * least;
    const int64_t lacks = cost.Lacks(decode);
    if (lacks <= options.local_continuation_tokens && 2 * lacks <= input.prompt_tokens) {
      ++stayed;  // a next turn, regardless of estimated speeds
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
