#include "router/router_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/router/router_core_fixture.h"
#include "tests/router/worker_reports.h"
#include "text/byte_alphabet.h"

namespace baton {
namespace {

TEST(RouterCore, ModelSourcesRotateThroughTheWorkers) {
  const SystemClock clock;
  RouterCore core(RouterOptions(), &clock);
  EXPECT_FALSE(core.ModelSource(0));
  for (const char* id : {"a", "b"}) ASSERT_TRUE(core.Heartbeat(Report(id)).ok());
  EXPECT_EQ(core.ModelSource(0)->report.address, "a:1");
  EXPECT_EQ(core.ModelSource(1)->report.address, "b:1");
  EXPECT_EQ(core.ModelSource(2)->report.address, "a:1");
}

// A prompt of 64 units and one more token.
struct KnownPrompt {
  std::vector<Hash128> hashes =
      ChainedHashes(CacheNamespace(1), std::vector<CacheUnit>(64 * kUnitsPerHash, CacheUnit{7}));
  RouteQuestion question{
      .prompt_hashes = hashes, .prompt_tokens = 64 * kUnitsPerHash + 1, .excluded = {}};
};

TEST(RouterCore, SentPromptsCountAsPendingUntilTheyAreComputed) {
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
  core.PrefillDone(route->plan);  // the second call has no effect
  EXPECT_EQ(prompts_of("prefill"), 0u);
  // The prompt of a request that waits for room on its decode worker counts from the ticket on.
  const absl::StatusOr<Route> queued = core.ChooseRoute(
      {.prompt_hashes = {}, .prompt_tokens = 1000, .excluded = {}, .queues_for_kv = true});
  EXPECT_EQ(queued->prefill_id, "prefill");
  EXPECT_EQ(prompts_of("prefill"), 0u);
  core.PrefillAdded(queued->plan);
  EXPECT_EQ(prompts_of("prefill"), 1u);
}

TEST(RouterCore, ChoosesOnlyWorkersThatHoldAsMuchOfTheAnswerAsAny) {
  const SystemClock clock;
  RouterOptions options;
  options.routing.policy = "round-robin";
  RouterCore core(options, &clock);
  WorkerReport small = Report("small");
  small.pool_tokens = 1000;
  WorkerReport large = Report("large");
  large.pool_tokens = 4000;
  WorkerReport narrow = Report("narrow");
  narrow.pool_tokens = 4000;
  narrow.context_length = 2000;
  for (const WorkerReport& report : {small, large, narrow}) {
    ASSERT_TRUE(core.Heartbeat(report).ok());
  }
  const auto chosen = [&core](int64_t tokens, int64_t least_room = 0) {
    std::set<std::string> workers;
    for (int i = 0; i < 6; ++i) {
      const absl::StatusOr<Route> route = core.ChooseRoute({.prompt_hashes = {},
                                                            .prompt_tokens = 100,
                                                            .sequence_tokens = tokens,
                                                            .least_room = least_room});
      if (!route.ok()) return std::set<std::string>{std::string(route.status().message())};
      EXPECT_EQ(route->room, least_room > 0 ? least_room : std::min<int64_t>(tokens, 4001));
      workers.insert(route->decode_id);
    }
    return workers;
  };
  using Workers = std::set<std::string>;
  EXPECT_EQ(chosen(1000), (Workers{"small", "large", "narrow"}));
  EXPECT_EQ(chosen(1001), (Workers{"small", "large", "narrow"})) << "the last token needs no KV";
  EXPECT_EQ(chosen(1002), (Workers{"large", "narrow"}));
  EXPECT_EQ(chosen(2001), Workers{"large"});
  EXPECT_EQ(chosen(100'000), Workers{"large"}) << "no worker can hold all of it";
  EXPECT_EQ(chosen(100'000, 2000), (Workers{"large", "narrow"})) << "the room of the first worker";
  core.Leave("large", Epoch(1));
  EXPECT_EQ(chosen(3000, 3000), Workers{"no decode worker is left that can hold 3000 tokens of the "
                                        "request; at most 2000 fit into one"});
}

TEST(RouterCore, SmallerDecodeWorkersServeAnswersWithoutALimitWhereTheLargeOnesCannotTakeThemNow) {
  const SystemClock clock;
  RouterCore core(RouterOptions(), &clock);
  const auto add = [&core](const std::string& id, int64_t pool_tokens) {
    WorkerReport report = Report(id);
    report.pool_tokens = pool_tokens;
    report.max_running = 2;
    ASSERT_TRUE(core.Heartbeat(report).ok());
  };
  add("large", 4000);
  add("small", 1000);
  add("tiny", 300);
  const auto ask = [&core](bool open_ended, const absl::flat_hash_set<WorkerNumber>& excluded) {
    return core.ChooseRoute({.prompt_hashes = {},
                             .prompt_tokens = 100,
                             .sequence_tokens = 8000,
                             .open_ended = open_ended,
                             .excluded = excluded});
  };
  const absl::StatusOr<Route> first = ask(true, {});
  EXPECT_EQ(first->decode_id, "large");
  EXPECT_EQ(first->room, 4001);
  const absl::StatusOr<Route> refused = ask(true, {first->plan.decode});
  EXPECT_EQ(refused->decode_id, "small") << "the large worker refused the request";
  EXPECT_EQ(refused->room, 1001);
  core.WorkerDone(refused->plan.decode);
  EXPECT_EQ(ask(true, {})->decode_id, "large");
  EXPECT_EQ(ask(true, {})->decode_id, "small") << "the large worker is at its limit of two";
  EXPECT_EQ(ask(false, {})->decode_id, "large") << "a request with max_tokens gets the room for it";
  EXPECT_EQ(ask(true, {})->decode_id, "small");
  std::set<std::string> chosen;
  for (int i = 0; i < 6; ++i) chosen.insert(ask(true, {})->decode_id);
  EXPECT_EQ(chosen, (std::set<std::string>{"large", "small"}))
      << "all workers are at their limits, and the tiny one cannot hold "
      << RouteQuestion::kLeastAnswerTokens << " tokens of an answer";
}

TEST(RouterCore, LearnsOnlyFromRegisteredWorkers) {
  const SystemClock clock;
  RouterCore core(RouterOptions(), &clock);
  ASSERT_TRUE(core.Heartbeat(Report("a")).ok());
  ASSERT_TRUE(core.Heartbeat(Report("b")).ok());
  const RouteQuestion question{.prompt_hashes = {}, .prompt_tokens = 1000, .excluded = {}};
  const RoutePlan first = core.ChooseRoute(question)->plan;
  FinishedRequest request{.decode = first.decode, .prefill = std::nullopt};
  request.computed_tokens = 1000;
  request.prefill_us = 10'000'000;  // ten times slower than the estimate
  for (int i = 0; i < 5; ++i) core.Learn(request);
  core.PrefillDone(first);
  core.WorkerDone(first.decode);
  const RoutePlan second = core.ChooseRoute(question)->plan;
  // The estimate for an unknown worker is the fleet's mean.
  EXPECT_GT(second.work.us, 2 * first.work.us);
  core.Leave("a", Epoch(1));
  core.Leave("b", Epoch(1));
  core.Tick();
  core.Learn(request);  // its workers have left
  EXPECT_FALSE(core.ChooseRoute(question).ok());
}

TEST(RouterCore, TellsTheRolePlannerWhatArrivedAndWhatFinishedOnWarmWorkers) {
  ManualClock clock;
  RouterCore core(RouterOptions(), &clock);
  WorkerReport report = Report("a");
  report.max_running = 8;
  ASSERT_TRUE(core.Heartbeat(report).ok());
  const RouteQuestion question{.prompt_hashes = {}, .prompt_tokens = 1000, .excluded = {}};
  const RoutePlan first = core.ChooseRoute(question)->plan;
  const RoutePlan second = core.ChooseRoute(question)->plan;
  const FinishedRequest request{.decode = first.decode, .prefill = std::nullopt};
  core.Learn(request);
  RoleLoad load = core.TakeRoleLoad();
  EXPECT_EQ(load.prefill_us, first.work.us + second.work.us);
  EXPECT_GT(load.prefill_us, 0);
  EXPECT_EQ(load.finished, 0) << "the worker has just joined";
  EXPECT_GT(load.token_us, 0);
  clock.AdvanceUs(RolePlanner::kWarmUpUs);
  ASSERT_TRUE(core.Heartbeat(report).ok());
  core.Learn(request);
  load = core.TakeRoleLoad();
  EXPECT_EQ(load.prefill_us, 0) << "nothing arrived since then";
  EXPECT_EQ(load.finished, 1);
}

TEST(RouterCore, ChoosesByThePolicyOfItsOptions) {
  const SystemClock clock;
  RouterOptions options;
  options.routing.policy = "round-robin";
  RouterCore core(options, &clock);
  for (const char* id : {"a", "b"}) ASSERT_TRUE(core.Heartbeat(Report(id)).ok());
  const RouteQuestion question{.prompt_hashes = {}, .prompt_tokens = 1000, .excluded = {}};
  for (const char* want : {"a", "b", "a"}) {
    EXPECT_EQ(core.ChooseRoute(question)->decode_id, want);
  }
}

// A tenant must not learn about another tenant's cache from response times. Routes and pulls would
// change those times.
TEST(RouterCore, AnotherTenantsCachedPromptChangesNoRoute) {
  using Plan =
      std::tuple<WorkerNumber, std::optional<WorkerNumber>, std::optional<PrefixPull>, PrefillWork>;
  const std::vector<CacheUnit> units(64 * kUnitsPerHash, CacheUnit{7});
  const auto hashes_of = [&units](const char* tenant) {
    return ChainedHashes(
        MakeNamespace({.tenant = tenant, .cache_salt = "", .lora = "", .model_revision = "model"}),
        units);
  };
  const std::vector<Hash128> mine = hashes_of("mine");
  const std::vector<Hash128> theirs = hashes_of("theirs");
  for (const std::string& policy : RoutingPolicyNames()) {
    SCOPED_TRACE(policy);
    const auto plans = [&](std::span<const Hash128> warm) {
      ManualClock clock;
      RouterOptions options;
      options.routing.policy = policy;
      options.routing.pull_weight = 0;  // every possible pull is worth its cost
      RouterCore core(options, &clock);
      for (const char* id : {"a", "b", "c"}) EXPECT_TRUE(core.Heartbeat(Report(id)).ok());
      EXPECT_TRUE(core.Heartbeat(Report("prefill", WorkerRole::kPrefill)).ok());
      core.Tick();
      const WorkerNumber holder = core.Workers().at(1).number;
      Tell(core, holder, {warm.begin(), warm.end()});
      core.Remember(holder, warm);
      std::vector<Plan> chosen;
      for (int i = 0; i < 8; ++i) {
        const auto placement = i % 2 == 0 ? Placement::kAutomatic : Placement::kLocal;
        const absl::StatusOr<Route> route =
            core.ChooseRoute({.prompt_hashes = mine,
                              .prompt_tokens = static_cast<int32_t>(units.size()) + 1,
                              .placement = placement,
                              .excluded = {},
                              .affinity_key = 5});
        EXPECT_TRUE(route.ok()) << route.status();
        if (!route.ok()) continue;
        const RoutePlan& plan = route->plan;
        chosen.push_back({plan.decode, plan.prefill, plan.pull, plan.work});
      }
      return chosen;
    };
    const std::vector<Plan> cold = plans({});
    EXPECT_EQ(plans(theirs), cold);
    for (const Plan& plan : cold) EXPECT_FALSE(std::get<std::optional<PrefixPull>>(plan));
    if (policy == "kv-aware") {
      EXPECT_NE(plans(mine), cold) << "the tenant's own cache must change the plans";
    }
  }
}

TEST_F(RouterCoreTest, APromptGoesToTheWorkerThatHasItCachedByItsEvents) {
  for (const char* id : {"a", "b", "c"}) ASSERT_TRUE(core_.Heartbeat(Report(id)).ok());
  core_.Tick();
  const KnownPrompt prompt;
  Tell(core_, Number(1), prompt.hashes);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(DecodeWorkerOf(core_, prompt.question), "b");
}

TEST_F(RouterCoreTest, AWaitingPromptIsIdentifiedByItsLongestCachedPrefix) {
  for (const char* id : {"a", "b", "c"}) ASSERT_TRUE(core_.Heartbeat(Report(id)).ok());
  core_.Tick();
  const KnownPrompt prompt;
  EXPECT_EQ(core_.ChooseRoute(prompt.question)->plan.work.prefix, 0u) << "no worker has any of it";
  Tell(core_, Number(1), {prompt.hashes.begin(), prompt.hashes.begin() + 40});
  Tell(core_, Number(2), {prompt.hashes.begin(), prompt.hashes.begin() + 10});
  EXPECT_EQ(core_.ChooseRoute(prompt.question)->plan.work.prefix, prompt.hashes[39].low);
  core_.Remember(Number(2), prompt.hashes);
  EXPECT_EQ(core_.ChooseRoute(prompt.question)->plan.work.prefix, prompt.hashes.back().low);
}

TEST_F(RouterCoreTest, AnAnswerCountsBeforeItsEventsForAMoment) {
  for (const char* id : {"a", "b"}) ASSERT_TRUE(core_.Heartbeat(Report(id)).ok());
  core_.Tick();
  const KnownPrompt prompt;
  Tell(core_, Number(1), {prompt.hashes[0]});
  core_.Remember(Number(1), prompt.hashes);
  EXPECT_EQ(core_.predicted_units(), prompt.hashes.size() - 1)
      << "units that the index does not have";
  EXPECT_EQ(DecodeWorkerOf(core_, prompt.question), "b");
  EXPECT_EQ(DecodeWorkerOf(core_, prompt.question), "b");
  clock_.AdvanceUs(2'000'000);
  core_.Tick();
  for (const char* id : {"a", "b"}) ASSERT_TRUE(core_.Heartbeat(Report(id)).ok());
  Tell(core_, Number(0), prompt.hashes);
  EXPECT_EQ(DecodeWorkerOf(core_, prompt.question), "a") << "the prediction has expired";
}

TEST_F(RouterCoreTest, AWorkerThatIsNotFollowedHasNothingCached) {
  for (const char* id : {"a", "b"}) ASSERT_TRUE(core_.Heartbeat(Report(id)).ok());
  core_.Tick();
  const KnownPrompt prompt;
  core_.index().CannotTell(Number(0), absl::UnimplementedError("no such method"));
  EXPECT_EQ(DecodeWorkerOf(core_, prompt.question), "a");
  core_.Remember(Number(0), prompt.hashes);
  EXPECT_EQ(core_.predicted_units(), 0u);
  EXPECT_EQ(DecodeWorkerOf(core_, prompt.question), "b") << "no cached prefix attracts the prompt";
}

TEST_F(RouterCoreTest, ARestartedWorkerHasNothingCached) {
  ASSERT_TRUE(core_.Heartbeat(Report("a")).ok());
  core_.Tick();
  const KnownPrompt prompt;
  Tell(core_, Number(0), prompt.hashes);
  EXPECT_EQ(core_.index().Status().memberships, prompt.hashes.size());
  for (int i = 0; i < 5; ++i) {
    clock_.AdvanceUs(500'000);
    core_.Tick();
  }
  WorkerReport again = Report("a");
  again.epoch = Epoch(2);
  ASSERT_TRUE(core_.Heartbeat(again).ok());
  core_.Tick();
  EXPECT_EQ(core_.index().Status().memberships, 0u);
  ASSERT_EQ(core_.index().Status().workers.size(), 1u);
  EXPECT_EQ(core_.index().Status().workers[0].epoch, Epoch(2));
}

TEST_F(RouterCoreTest, AFrozenRouterDoesNotForgetItsWorkers) {
  ASSERT_TRUE(core_.Heartbeat(Report("a")).ok());
  core_.Tick();
  clock_.AdvanceUs(60'000'000);
  core_.Tick();
  EXPECT_EQ(core_.Workers().size(), 1u);
  for (int i = 0; i < 4; ++i) {
    clock_.AdvanceUs(900'000);
    core_.Tick();
  }
  EXPECT_TRUE(core_.Workers().empty());
}

std::shared_ptr<const ServedModel> Model() {
  ModelDescription description;
  description.fingerprint = "model";
  description.context_length = 100;
  description.tokenizer.model = "gpt2";
  description.tokenizer.pre = "gpt-2";
  for (int byte = 0; byte < 256; ++byte) {
    description.tokenizer.tokens.push_back(ByteToAlphabet(static_cast<uint8_t>(byte)));
  }
  description.tokenizer.token_types.assign(256, 1);
  const auto model = ServedModel::Create(std::move(description));
  EXPECT_TRUE(model.ok()) << model.status();
  return *model;
}

TEST_F(RouterCoreTest, TheFirstReadinessWaitsForEveryWorkersEvents) {
  WorkerReport silent = Report("silent");
  silent.prefix_cache = false;
  for (const WorkerReport& report : {Report("a"), Report("b"), silent}) {
    ASSERT_TRUE(core_.Heartbeat(report).ok());
  }
  ASSERT_TRUE(core_.SetModel(Model()).ok());
  EXPECT_FALSE(core_.ready()) << "no worker is in the index yet";
  core_.Tick();
  Tell(core_, Number(0), {});
  EXPECT_FALSE(core_.ready());
  Tell(core_, Number(1), {});
  EXPECT_TRUE(core_.ready());
  ASSERT_TRUE(core_.Heartbeat(Report("late")).ok());
  core_.Tick();
  EXPECT_TRUE(core_.ready()) << "workers that join later do not make it unready";
}

TEST(RouterCore, ChangesOfRolesDoNotMakeItUnready) {
  const SystemClock clock;
  RouterOptions options;
  options.min_prefill_workers = 1;
  options.index_wait_ms = 0;
  RouterCore core(options, &clock);
  WorkerReport one = Report("one", WorkerRole::kDecode);
  WorkerReport other = Report("other", WorkerRole::kDecode);
  one.changes_role = other.changes_role = true;
  for (const WorkerReport& report : {one, other}) ASSERT_TRUE(core.Heartbeat(report).ok());
  ASSERT_TRUE(core.SetModel(Model()).ok());
  EXPECT_FALSE(core.ready()) << "no worker has the role prefill at the start";
  one.role = WorkerRole::kPrefill;
  ASSERT_TRUE(core.Heartbeat(one).ok());
  EXPECT_TRUE(core.ready());
  one.role = WorkerRole::kDecode;
  ASSERT_TRUE(core.Heartbeat(one).ok());
  EXPECT_TRUE(core.ready());
  one.role = other.role = WorkerRole::kPrefill;
  for (const WorkerReport& report : {one, other}) ASSERT_TRUE(core.Heartbeat(report).ok());
  EXPECT_FALSE(core.ready()) << "no worker can decode now";
}

TEST_F(RouterCoreTest, AWorkerThatCannotBeFollowedDelaysReadinessForALimitedTime) {
  ASSERT_TRUE(core_.Heartbeat(Report("a")).ok());
  ASSERT_TRUE(core_.SetModel(Model()).ok());
  core_.Tick();
  const int64_t wait_us = RouterOptions().index_wait_ms * 1000;
  for (int64_t waited_us = 0; waited_us < wait_us; waited_us += 1'000'000) {
    EXPECT_FALSE(core_.ready()) << waited_us;
    clock_.AdvanceUs(1'000'000);
    ASSERT_TRUE(core_.Heartbeat(Report("a")).ok());
    core_.Tick();
  }
  EXPECT_TRUE(core_.ready());
}

// A rollout keeps failing: each present worker joined too late to have settled.
TEST_F(RouterCoreTest, WorkersThatComeAndGoUnfollowedDelayReadinessForALimitedTime) {
  ASSERT_TRUE(core_.Heartbeat(Report("good")).ok());
  ASSERT_TRUE(core_.SetModel(Model()).ok());
  const int64_t wait_us = RouterOptions().index_wait_ms * 1000;
  for (int64_t waited_us = 0; waited_us < wait_us; waited_us += 1'000'000) {
    ASSERT_TRUE(core_.Heartbeat(Report("good")).ok());
    const std::string id = absl::StrCat("bad-", waited_us);
    ASSERT_TRUE(core_.Heartbeat(Report(id)).ok());
    core_.Tick();
    EXPECT_FALSE(core_.ready()) << waited_us;
    core_.Leave(id, Epoch(1));
    clock_.AdvanceUs(1'000'000);
  }
  ASSERT_TRUE(core_.Heartbeat(Report("bad")).ok());
  core_.Tick();
  EXPECT_TRUE(core_.ready());
}

// The last worker of one model leaves and the first worker of another model registers while a
// prompt waits.
TEST_F(RouterCoreTest, TokensOfOneModelNeverGoToAnother) {
  ASSERT_TRUE(core_.Heartbeat(Report("a")).ok());
  RouteQuestion question{.prompt_hashes = {}, .prompt_tokens = 10, .excluded = {}};
  question.model = core_.Workers()[0].report.model;
  ASSERT_TRUE(core_.ChooseRoute(question).ok());
  core_.Leave("a", Epoch(1));
  WorkerReport other = Report("b");
  other.model = "another model";
  ASSERT_TRUE(core_.Heartbeat(other).ok());
  const absl::StatusOr<Route> route = core_.ChooseRoute(question);
  EXPECT_TRUE(absl::IsUnavailable(route.status())) << route.status();
  EXPECT_THAT(route.status().message(), testing::HasSubstr("the fleet serves another model now"));
  question.model = "another model";
  EXPECT_TRUE(core_.ChooseRoute(question).ok());
}

}  // namespace
}  // namespace baton
