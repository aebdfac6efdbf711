#include "routing/route_cost.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "tests/routing/fleet.h"

namespace baton {
namespace {

class RouteCostTest : public ::testing::Test {
 protected:
  RouteCostTest() {
    fleet_.Add(WorkerRole::kPrefill);
    fleet_.Add(WorkerRole::kDecode);
  }
  const WorkerRecord& prefill() const { return fleet_.workers[0]; }
  const WorkerRecord& decode() const { return fleet_.workers[1]; }
  // The cost for the present fixture. References must outlive it.
  template <typename Function>
  auto Ask(const Function& ask) {
    const FleetView view = fleet_.View();
    return ask(RouteCost(options_, input_, view));
  }
  bool Local() {
    return Ask([this](const RouteCost& cost) { return cost.ComputesLocally(decode(), prefill()); });
  }

  Fleet fleet_;
  RoutingOptions options_;
  RoutingInput input_{.prompt_tokens = 1000, .cached_tokens = {}, .excluded = {}};
};

TEST_F(RouteCostTest, AtLeastOneTokenIsComputedForAnyHint) {
  input_.cached_tokens[prefill().number] = 5000;
  input_.cached_tokens[decode().number] = -5;
  EXPECT_EQ(Ask([this](const RouteCost& cost) { return cost.Uncached(prefill()); }), 1);
  EXPECT_EQ(Ask([this](const RouteCost& cost) { return cost.Uncached(decode()); }), 1000);
}

TEST_F(RouteCostTest, APrefixThatIsTooShortForAWorkerCountsAsNone) {
  input_.cached_tokens[prefill().number] = 112;
  const auto uncached = [this] {
    return Ask([this](const RouteCost& cost) { return cost.Uncached(prefill()); });
  };
  WorkerReport& report = fleet_.workers[0].report;
  report.block_size = 16;
  report.min_prefix_tokens = 112;  // seven blocks
  EXPECT_EQ(uncached(), 1000 - 112);
  report.min_prefix_tokens = 113;
  EXPECT_EQ(uncached(), 1000);
  report.block_size = 64;  // a worker counts whole blocks: it has one of two
  report.min_prefix_tokens = 100;
  EXPECT_EQ(uncached(), 1000);
  report.min_prefix_tokens = INT32_MAX;
  EXPECT_EQ(uncached(), 1000);
}

TEST_F(RouteCostTest, NoPullIsPlannedForAnUnusablePrefix) {
  input_.cached_tokens[decode().number] = 900;
  const auto pull = [this] {
    return Ask([this](const RouteCost& cost) { return cost.Plan(decode(), &prefill()); }).pull;
  };
  fleet_.workers[0].report.min_prefix_tokens = 896;
  EXPECT_TRUE(pull().has_value());
  fleet_.workers[0].report.min_prefix_tokens = 901;
  EXPECT_EQ(pull(), std::nullopt);
}

TEST_F(RouteCostTest, ShippingMoreTakesLonger) {
  const auto hand_off = [this] {
    return Ask([this](const RouteCost& cost) { return cost.HandOffUs(decode()); });
  };
  const double all = hand_off();
  input_.cached_tokens[decode().number] = 800;
  const double rest = hand_off();
  EXPECT_LT(rest, all);
  fleet_.workers[1].report.kv_bytes_per_token *= 10;
  EXPECT_GT(hand_off(), rest);
}

TEST_F(RouteCostTest, WhetherADecodeWorkerComputesFollowsTheMeasuredSpeeds) {
  options_.local_prefill_tokens = 0;
  input_.prompt_tokens = 100;
  EXPECT_FALSE(Local());  // 25 ms against 4 ms of hand-off
  FinishedRequest fast{.decode = decode().number, .prefill = std::nullopt};
  fast.computed_tokens = 1000;
  fast.prefill_us = 5000;
  for (int i = 0; i < 20; ++i) fleet_.speeds.Learn(fast);
  EXPECT_TRUE(Local());  // 0.5 ms
  input_.prompt_tokens = 50'000;
  fleet_.workers[0].report.available_blocks = fleet_.workers[1].report.available_blocks = 100'000;
  EXPECT_FALSE(Local());
}

TEST_F(RouteCostTest, OtherRoutersRequestsCountWhereTheyWaitOrDecode) {
  const auto prefill_us = [this] {
    return Ask([this](const RouteCost& cost) { return cost.PrefillUs(prefill()); });
  };
  const auto decode_us = [this] {
    return Ask([this](const RouteCost& cost) { return cost.DecodeUs(decode()); });
  };
  const double prefill_before = prefill_us();
  const double decode_before = decode_us();
  fleet_.workers[0].others = 2;
  fleet_.workers[1].others = 2;
  EXPECT_NEAR(prefill_us() - prefill_before, 2 * fleet_.speeds.prefill_us(), 1);
  EXPECT_GT(decode_us(), decode_before);
}

TEST_F(RouteCostTest, APromptDelaysTheAnswersOfAWorkerThatDecodes) {
  options_.answer_delay_weight = 0.1;
  WorkerRecord& both = fleet_.Add(WorkerRole::kBoth);
  const auto costs = [&] {
    return Ask([&](const RouteCost& cost) {
      return std::pair(cost.PrefillUs(both), cost.LocalUs(both, nullptr) - cost.DecodeUs(both));
    });
  };
  const auto idle = costs();
  EXPECT_EQ(idle.first, idle.second);
  both.active = 7;
  both.others = 5;
  both.prompts = {{.tokens = 10, .us = 0}, {.tokens = 10, .us = 0}};  // of the active ones
  const auto busy = costs();
  EXPECT_EQ(busy.first, busy.second);
  const double compute_us = idle.first / options_.compute_weight;
  EXPECT_NEAR(busy.first - idle.first, 0.1 * 10 * compute_us, 1);
  // A worker that only prefills has no answers.
  WorkerRecord& prefills = fleet_.workers[0];
  const auto cost_of = [&] {
    return Ask([&](const RouteCost& cost) { return cost.PrefillUs(prefills); });
  };
  const double before = cost_of();
  prefills.active = 7;
  EXPECT_EQ(cost_of(), before);
}

TEST_F(RouteCostTest, APoolWithoutRoomIsTheLastChoice) {
  const auto cost_us = [this] {
    return Ask([this](const RouteCost& cost) { return cost.LocalUs(decode(), nullptr); });
  };
  fleet_.workers[1].active = 10'000;
  const double crowded = cost_us();
  fleet_.workers[1].active = 0;
  fleet_.workers[1].report.available_blocks = 62;  // 992 tokens
  EXPECT_GT(cost_us(), 1000 * crowded);
  input_.cached_tokens[decode().number] = 16;
  EXPECT_LT(cost_us(), crowded);
}

TEST_F(RouteCostTest, APullReplacesComputingWhereItCostsLess) {
  input_.cached_tokens[decode().number] = 900;
  const auto plan = [this] {
    return Ask([this](const RouteCost& cost) { return cost.Plan(decode(), &prefill()); });
  };
  const WorkerThroughput& speeds = fleet_.speeds.Of(prefill().number);
  const auto us = static_cast<int64_t>(speeds.TransferUs(900 * 23'040) + speeds.PullUs());
  EXPECT_EQ(plan().pull, (PrefixPull{.from = decode().number, .tokens = 900, .us = us}));
  EXPECT_EQ(plan().work.tokens, 1000);
  EXPECT_EQ(plan().work.us, static_cast<int64_t>(speeds.PrefillUs(900, 1000)))
      << "a pull does not delay other prompts";
  options_.pull_weight = 1000;
  EXPECT_EQ(plan().pull, std::nullopt);
  options_.pull_weight = 0;
  input_.cached_tokens[decode().number] = 1;
  EXPECT_EQ(plan().pull->tokens, 1);
  options_.pull_prefixes = false;
  EXPECT_EQ(plan().pull, std::nullopt);
}

TEST_F(RouteCostTest, ThePlanHasTheExpectedTimeToTheFirstToken) {
  const auto plan = [this](bool remote) {
    return Ask(
        [&](const RouteCost& cost) { return cost.Plan(decode(), remote ? &prefill() : nullptr); });
  };
  const WorkerThroughput& speeds = fleet_.speeds.Of(prefill().number);
  const double compute_us = speeds.PrefillUs(0, 1000);
  EXPECT_EQ(plan(false).first_token_us, static_cast<int64_t>(compute_us));
  const double hand_off_us =
      Ask([this](const RouteCost& cost) { return cost.HandOffUs(decode()); });
  EXPECT_NEAR(static_cast<double>(plan(true).first_token_us), compute_us + hand_off_us, 2);
  // Weights change the choice, not the expectation.
  options_.compute_weight = 100;
  EXPECT_EQ(plan(false).first_token_us, static_cast<int64_t>(compute_us));
  // Prompts ahead are waited for.
  fleet_.workers[1].pending = {.tokens = 500, .us = 70'000};
  fleet_.workers[1].prompts = {fleet_.workers[1].pending};
  fleet_.workers[1].prefilling_since_us = fleet_.View().now_us;
  const int64_t backlog_us = decode().BacklogUs(fleet_.View().now_us);
  EXPECT_GT(backlog_us, 0);
  EXPECT_EQ(plan(false).first_token_us, static_cast<int64_t>(compute_us) + backlog_us);
}

TEST_F(RouteCostTest, PromptsOfOtherRoutersAreWaitedForToo) {
  const auto first_token_us = [this] {
    return Ask([this](const RouteCost& cost) { return cost.Plan(decode(), nullptr); })
        .first_token_us;
  };
  const int64_t alone_us = first_token_us();
  WorkerRecord& worker = fleet_.workers[1];
  worker.others_tokens = 2000;
  worker.last_heard_us = fleet_.now_us;
  const auto others_us = static_cast<int64_t>(fleet_.speeds.PromptTokensUs(2000));
  EXPECT_GT(others_us, 0);
  EXPECT_NEAR(static_cast<double>(first_token_us()), static_cast<double>(alone_us + others_us), 2);
  fleet_.now_us += others_us / 2;  // it computes them meanwhile
  EXPECT_NEAR(static_cast<double>(first_token_us()), static_cast<double>(alone_us + others_us / 2),
              2);
  fleet_.now_us += others_us;
  EXPECT_EQ(first_token_us(), alone_us);
}

TEST_F(RouteCostTest, OwnPromptsAndThoseOfOthersAreComputedOneAfterTheOther) {
  const auto backlog_us = [this] {
    const RoutePlan plan =
        Ask([this](const RouteCost& cost) { return cost.Plan(decode(), nullptr); });
    return static_cast<double>(plan.first_token_us - plan.work.us);
  };
  WorkerRecord& worker = fleet_.workers[1];
  const PrefillWork own{.tokens = 1000, .us = 300'000};
  worker.pending = own;
  worker.prompts = {own};
  worker.prefilling_since_us = worker.last_heard_us = fleet_.now_us;
  worker.heard_prompts = 1;
  worker.heard_own_us = own.us;
  worker.others_tokens = 2000;
  const double others_us = fleet_.speeds.PromptTokensUs(2000);
  ASSERT_GT(others_us, 200'000);
  EXPECT_NEAR(backlog_us(), others_us + 300'000, 2);
  fleet_.now_us += 100'000;  // one of them is being computed, not both
  EXPECT_NEAR(backlog_us(), others_us + 200'000, 2);
  // A prompt sent after the heartbeat comes on top.
  worker.prompts.push_back(own);
  worker.pending.us += own.us;
  EXPECT_NEAR(backlog_us(), others_us + 500'000, 2);
  // It is never less than what this router knows: the second prompt has not begun.
  fleet_.now_us += 10'000'000;
  EXPECT_NEAR(backlog_us(), 300'000, 2);
}

TEST_F(RouteCostTest, SeveralRoutersPreferDifferentWorkers) {
  const auto us = [this](int32_t routers, int32_t router_place, int32_t place) {
    WorkerRecord& worker = fleet_.workers[0];
    worker.report.routers = routers;
    worker.report.router_place = router_place;
    worker.report.prompt_tokens_left = 0;
    worker.place = place;
    worker.alike = 8;
    worker.active = 1;
    worker.others = std::max(1, routers - 1);  // as many requests from each router
    return Ask([this](const RouteCost& cost) { return cost.PrefillUs(prefill()); });
  };
  const double home_us = us(1, 0, 3);
  EXPECT_EQ(us(2, 1, 3), home_us);
  EXPECT_EQ(us(2, 1, 7), home_us);
  const double prompt_us = options_.away_weight * fleet_.speeds.prefill_us();
  EXPECT_NEAR(us(2, 0, 3), home_us + prompt_us * 2 / 8, 2);
  EXPECT_NEAR(us(4, 0, 3), home_us + prompt_us * 4 / 8, 2);
  // With more routers than workers, some routers share a home.
  EXPECT_EQ(us(20, 11, 3), home_us);
  EXPECT_NEAR(us(20, 12, 3), home_us + prompt_us / 2, 2) << "at most a half";
  // Another router that sends nothing is no company.
  us(2, 0, 3);
  fleet_.workers[0].others = 0;
  EXPECT_EQ(Ask([this](const RouteCost& cost) { return cost.PrefillUs(prefill()); }), home_us);
  us(2, 0, 3);
  fleet_.workers[0].alike = 0;  // a large fleet
  EXPECT_EQ(Ask([this](const RouteCost& cost) { return cost.PrefillUs(prefill()); }), home_us);
}

TEST_F(RouteCostTest, ADecodeWorkerThatIsAnotherRoutersHomeComputesFewerPromptsItself) {
  options_.local_prefill_tokens = 0;
  options_.local_continuation_tokens = 0;
  options_.local_prefill_penalty = 0;
  options_.answer_delay_weight = 0;
  options_.away_weight = 100;
  WorkerRecord& worker = fleet_.workers[1];
  worker.report.routers = 2;
  worker.report.prompt_tokens_left = 0;
  worker.alike = 8;
  worker.place = 3;
  worker.active = worker.others = 1;
  const auto local_us = [this] {
    return Ask([this](const RouteCost& cost) { return cost.LocalUs(decode(), &prefill()); });
  };
  worker.report.router_place = 1;  // this router's home
  const double home_us = local_us();
  EXPECT_TRUE(Local());
  worker.report.router_place = 0;
  EXPECT_NEAR(local_us(), home_us + 100 * fleet_.speeds.prefill_us() * 2 / 8, 2);
  EXPECT_FALSE(Local());
}

TEST_F(RouteCostTest, SequencesOfOtherRoutersStandForPromptsOnlyIfTheirTokensAreUnknown) {
  const auto us = [this] {
    return Ask([this](const RouteCost& cost) { return cost.PrefillUs(prefill()); });
  };
  const double alone_us = us();
  WorkerRecord& worker = fleet_.workers[0];
  worker.others = 3;
  EXPECT_NEAR(us(), alone_us + 3 * fleet_.speeds.prefill_us(), 2);
  worker.report.prompt_tokens_left = 0;
  EXPECT_NEAR(us(), alone_us, 2) << "they have computed their prompts";
}

TEST_F(RouteCostTest, ThePlanKnowsTheMostThatAUsableWorkerHasCached) {
  const auto held = [this] {
    return Ask([this](const RouteCost& cost) { return cost.Plan(decode(), nullptr); }).held_tokens;
  };
  EXPECT_EQ(held(), 0);
  input_.cached_tokens[prefill().number] = 640;
  input_.cached_tokens[decode().number] = 320;
  EXPECT_EQ(held(), 640);
  fleet_.workers[0].unreachable = true;
  EXPECT_EQ(held(), 320);
  input_.cached_tokens[decode().number] = 5000;
  EXPECT_EQ(held(), 992) << "whole blocks of 16, and never the last token";
}

TEST_F(RouteCostTest, AFewBlocksOfASmallModelAreWorthAPull) {
  input_.prompt_tokens = 40;
  input_.cached_tokens[decode().number] = 32;  // two blocks of 16
  const auto pull = [this] {
    return Ask([this](const RouteCost& cost) { return cost.Plan(decode(), &prefill()); }).pull;
  };
  EXPECT_EQ(pull()->tokens, 32);
  for (int i = 0; i < 50; ++i) {
    fleet_.speeds.Learn(FinishedPull{.receiver = prefill().number,
                                     .us = 10'000'000,
                                     .kv_bytes = 1 << 20,
                                     .kv_transfer_us = 1000});
  }
  EXPECT_EQ(pull(), std::nullopt) << "pulls are slow here";
  input_.prompt_tokens = 300;
  input_.cached_tokens[decode().number] = 256;
  EXPECT_TRUE(pull().has_value()) << "but their estimated time has a ceiling";
}

TEST_F(RouteCostTest, ThePullIsFromTheWorkerThatHoldsMost) {
  fleet_.Add(WorkerRole::kDecode);
  fleet_.Add(WorkerRole::kDecode);
  input_.cached_tokens = {{WorkerNumber(2), 600}, {WorkerNumber(3), 900}, {WorkerNumber(4), 900}};
  fleet_.workers[2].active = 1;  // has the same share, but more load
  const auto from = [this] {
    return Ask([this](const RouteCost& cost) { return cost.Plan(decode(), &prefill()); })
        .pull->from;
  };
  EXPECT_EQ(from(), WorkerNumber(4));
  fleet_.workers[3].unreachable = true;
  EXPECT_EQ(from(), WorkerNumber(3));
}

class ChunkedRouteCostTest : public RouteCostTest {
 protected:
  // Two chunks of 400 tokens, and 200 other tokens.
  ChunkedRouteCostTest() {
    fleet_.Add(WorkerRole::kDecode);
    fleet_.Add(WorkerRole::kDecode);
    for (WorkerRecord& worker : fleet_.workers) SetHandsOver(worker, true);
    input_.chunk_repair = ChunkRepair();
    input_.chunks = &holdings_;
  }
  static void SetHandsOver(WorkerRecord& worker, bool hands_over) {
    worker.report.chunks =
        std::make_shared<const PromptChunkSupport>(PromptChunkSupport{.hands_over = hands_over});
  }
  void Hold(uint32_t worker, int32_t chunk) {
    holdings_.Hold(WorkerNumber(worker), chunk);
    input_.cached_tokens[WorkerNumber(worker)] += 400;
  }
  std::optional<PrefixPull> Pull() {
    return Ask([this](const RouteCost& cost) { return cost.Plan(decode(), nullptr); }).pull;
  }

  ChunkHoldings holdings_{{400, 400}, {{0}, {1}}};
};

TEST_F(ChunkedRouteCostTest, ChunksArePulledFromTheWorkerThatHasMostOfThem) {
  EXPECT_EQ(Pull(), std::nullopt);
  Hold(3, 0);
  EXPECT_EQ(Pull()->from, WorkerNumber(3));
  EXPECT_EQ(Pull()->tokens, 400);
  Hold(4, 0);
  Hold(4, 1);
  EXPECT_EQ(Pull()->from, WorkerNumber(4));
  EXPECT_EQ(Pull()->tokens, 800);
  const auto work = [this] {
    return Ask([this](const RouteCost& cost) { return cost.Plan(decode(), nullptr); }).work;
  };
  const int64_t pulling_us = work().us;
  options_.pull_prefixes = false;
  EXPECT_EQ(Pull(), std::nullopt);
  EXPECT_GT(work().us, pulling_us);
}

TEST_F(ChunkedRouteCostTest, OnlyChunksThatTheWorkerLacksArePulled) {
  for (const int32_t chunk : {0, 1}) Hold(3, chunk);
  Hold(2, 1);
  EXPECT_EQ(Pull()->tokens, 400);
  Hold(2, 0);
  EXPECT_EQ(Pull(), std::nullopt);
}

TEST_F(ChunkedRouteCostTest, APullThatCostsMoreThanComputingIsNotPlanned) {
  Hold(3, 0);
  fleet_.workers[1].report.kv_bytes_per_token = 1 << 30;
  EXPECT_EQ(Pull(), std::nullopt);
}

TEST_F(ChunkedRouteCostTest, BothWorkersMustHandChunksOver) {
  Hold(3, 0);
  SetHandsOver(fleet_.workers[2], false);
  EXPECT_EQ(Pull(), std::nullopt);
  SetHandsOver(fleet_.workers[2], true);
  EXPECT_TRUE(Pull().has_value());
  SetHandsOver(fleet_.workers[1], false);
  EXPECT_EQ(Pull(), std::nullopt);
  fleet_.workers[1].report.chunks.reset();
  EXPECT_EQ(Pull(), std::nullopt);
}

}  // namespace
}  // namespace baton
