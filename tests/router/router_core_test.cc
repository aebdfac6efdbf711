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

TEST(RouterCore, ExpectsAHitWhereAPromptWasBefore) {
  EXPECT_EQ(DecodeWorkerOfAKnownPrompt(/*prefix_cache=*/true), "first");
}

TEST(RouterCore, ExpectsNoHitAtAWorkerWithoutPrefixCache) {
  // Nothing draws the prompt back, so the worker with fewer requests gets it.
  EXPECT_EQ(DecodeWorkerOfAKnownPrompt(/*prefix_cache=*/false), "second");
}

}  // namespace
}  // namespace baton
