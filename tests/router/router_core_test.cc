#include "router/router_core.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

WorkerReport Report(const std::string& id, WorkerRole role = WorkerRole::kDecode) {
  WorkerReport report;
  report.id = id;
  report.address = id + ":1";
  report.role = role;
  report.epoch = Epoch(1);
  report.model = "model";
  report.fingerprint = "fingerprint";
  report.block_size = 16;
  report.available_blocks = 1000;
  return report;
}

TEST(RouterCore, EveryTurnAsksAnotherWorkerForTheModel) {
  const SystemClock clock;
  RouterCore core(RouterOptions(), &clock);
  EXPECT_EQ(core.ModelSource(0), "");
  for (const char* id : {"a", "b"}) ASSERT_TRUE(core.Heartbeat(Report(id)).ok());
  EXPECT_EQ(core.ModelSource(0), "a:1");
  EXPECT_EQ(core.ModelSource(1), "b:1");
  EXPECT_EQ(core.ModelSource(2), "a:1");
}

// Where a prompt of 64 known runs goes when `decode` said that it keeps a prefix cache, or not.
std::string DecodeWorkerOfAKnownPrompt(bool prefix_cache) {
  const SystemClock clock;
  RouterCore core(RouterOptions(), &clock);
  WorkerReport first = Report("first");
  first.prefix_cache = prefix_cache;
  EXPECT_TRUE(core.Heartbeat(first).ok());
  EXPECT_TRUE(core.Heartbeat(Report("second")).ok());
  const std::vector<Hash128> hashes =
      ChainedHashes(CacheNamespace(1), std::vector<CacheUnit>(64 * kUnitsPerHash, CacheUnit{7}));
  const RouteQuestion question{
      .prompt_hashes = hashes, .prompt_tokens = 64 * kUnitsPerHash + 1, .excluded = {}};
  const absl::StatusOr<Route> cold = core.ChooseRoute(question);
  EXPECT_TRUE(cold.ok());
  EXPECT_EQ(cold->decode_id, "first");
  core.WorkerDone(cold->plan.decode);
  core.Remember(cold->plan.decode, hashes);
  return core.ChooseRoute(question)->decode_id;
}

TEST(RouterCore, WhatWasSentCountsAsPendingUntilItIsComputed) {
  const SystemClock clock;
  RouterCore core(RouterOptions(), &clock);
  ASSERT_TRUE(core.Heartbeat(Report("decode")).ok());
  ASSERT_TRUE(core.Heartbeat(Report("prefill", WorkerRole::kPrefill)).ok());
  const auto prompts_of = [&core](const std::string& id) {
    for (const WorkerRecord& worker : core.Workers()) {
      if (worker.report.id == id) return worker.prompts.size();
    }
    return size_t{99};
  };
  const absl::StatusOr<Route> route =
      core.ChooseRoute({.prompt_hashes = {}, .prompt_tokens = 1000, .excluded = {}});
  ASSERT_TRUE(route.ok());
  EXPECT_EQ(route->prefill_id, "prefill");
  EXPECT_EQ(route->decode_batch, 1);
  EXPECT_EQ(prompts_of("prefill"), 1u);
  EXPECT_EQ(prompts_of("decode"), 0u);
  core.PrefillDone(route->plan);
  core.PrefillDone(route->plan);  // nothing is left to count off
  EXPECT_EQ(prompts_of("prefill"), 0u);
}

TEST(RouterCore, LearnsFromTheWorkersThatAreThere) {
  const SystemClock clock;
  RouterCore core(RouterOptions(), &clock);
  ASSERT_TRUE(core.Heartbeat(Report("a")).ok());
  ASSERT_TRUE(core.Heartbeat(Report("b")).ok());
  const RouteQuestion question{.prompt_hashes = {}, .prompt_tokens = 1000, .excluded = {}};
  const RoutePlan first = core.ChooseRoute(question)->plan;
  FinishedRequest request{.decode = first.decode, .prefill = std::nullopt};
  request.computed_tokens = 1000;
  request.prefill_us = 10'000'000;  // ten times slower than was believed
  for (int i = 0; i < 5; ++i) core.Learn(request);
  core.PrefillDone(first);
  core.WorkerDone(first.decode);
  const RoutePlan second = core.ChooseRoute(question)->plan;
  EXPECT_GT(second.work.us, 2 * first.work.us);  // one fleet, one guess for the other worker
  core.Leave("a", Epoch(1));
  core.Leave("b", Epoch(1));
  core.Learn(request);  // of nobody
  EXPECT_FALSE(core.ChooseRoute(question).ok());
}

TEST(RouterCore, ChoosesByThePolicyOfItsOptions) {
  const SystemClock clock;
  RouterOptions options;
  options.routing.policy = RoutingPolicyKind::kRoundRobin;
  RouterCore core(options, &clock);
  for (const char* id : {"a", "b"}) ASSERT_TRUE(core.Heartbeat(Report(id)).ok());
  const RouteQuestion question{.prompt_hashes = {}, .prompt_tokens = 1000, .excluded = {}};
  for (const char* want : {"a", "b", "a"}) {
    EXPECT_EQ(core.ChooseRoute(question)->decode_id, want);
  }
}

TEST(RouterCore, ExpectsAHitWhereAPromptWasBefore) {
  EXPECT_EQ(DecodeWorkerOfAKnownPrompt(/*prefix_cache=*/true), "first");
}

TEST(RouterCore, ExpectsNoHitAtAWorkerWithoutPrefixCache) {
  // Nothing draws the prompt back, so the worker with fewer requests gets it.
  EXPECT_EQ(DecodeWorkerOfAKnownPrompt(/*prefix_cache=*/false), "second");
}

}  // namespace
}  // namespace baton
