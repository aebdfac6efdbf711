#include "routing/role_planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/routing/fleet.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kPeriodUs = 10'000'000;
constexpr double kTokenUs = 10'000;  // so 100 tokens a second keep a worker busy

// A planner with a fleet whose load the test sets in workers.
class PlannedFleet {
 public:
  PlannedFleet(int prefill, int decode, int both = 0) {
    for (int i = 0; i < prefill; ++i) Add(WorkerRole::kPrefill);
    for (int i = 0; i < decode; ++i) Add(WorkerRole::kDecode);
    for (int i = 0; i < both; ++i) Add(WorkerRole::kBoth);
  }
  WorkerRecord& Add(WorkerRole role) {
    WorkerRecord& worker = fleet.Add(role);
    worker.report.changes_role = true;
    worker.report.pool_tokens = 1000 * worker.report.block_size;
    worker.report.max_running = 64;
    return worker;
  }
  // A load that keeps so many workers busy with prompts and with answers.
  const RoleWish& Look(double prompts, double answers, int64_t finished = 100) {
    for (WorkerRecord& worker : fleet.workers) worker.report.decode_tokens_per_s = 0;
    fleet.workers.back().report.decode_tokens_per_s = answers * 1e6 / kTokenUs;
    now_us += planner.look_interval_us();
    const auto prefill_us =
        static_cast<int64_t>(prompts * static_cast<double>(planner.look_interval_us()));
    return planner.Look(now_us, fleet.workers,
                        {.prefill_us = prefill_us, .finished = finished, .token_us = kTokenUs});
  }
  // Looks until a flip is due, at most `most` times. Returns the number of looks; 0: none was due.
  int LooksUntilFlip(double prompts, double answers, int most = 40) {
    for (int i = 1; i <= most; ++i) {
      if (Look(prompts, answers).flip) return i;
    }
    return 0;
  }
  // Carries the due flip out.
  RoleFlip Flip() {
    const RoleFlip flip = *planner.wish().flip;
    WorkerRecord& worker = fleet.At(flip.number);
    EXPECT_EQ(worker.report.role, flip.from);
    worker.report.role = flip.to;
    worker.role_since_us = now_us;
    planner.Flipped(now_us);
    return flip;
  }
  int Count(WorkerRole role) const {
    return static_cast<int>(
        std::count_if(fleet.workers.begin(), fleet.workers.end(),
                      [&](const WorkerRecord& worker) { return worker.report.role == role; }));
  }

  Fleet fleet;
  RolePlanner planner{{.period_us = kPeriodUs}};
  int64_t now_us = 1'000'000'000;
};

TEST(RolePlanner, WishesNothingBeforeEnoughRequestsHaveFinishedOnWarmWorkers) {
  PlannedFleet it(1, 3);
  for (int i = 0; i < 8; ++i) EXPECT_FALSE(it.Look(3, 0.5, /*finished=*/1).known);
  EXPECT_THAT(it.planner.wish().reason, HasSubstr("8 of 16"));
  EXPECT_FALSE(it.planner.wish().flip);
  EXPECT_TRUE(it.Look(3, 0.5, /*finished=*/8).known);
  WorkerRecord& late = it.Add(WorkerRole::kDecode);
  late.joined_us = it.now_us;
  EXPECT_FALSE(it.Look(3, 0.5).known);
  EXPECT_THAT(it.planner.wish().reason, HasSubstr("not warm"));
  EXPECT_TRUE(it.Look(3, 0.5).known) << "it is warm after 5 s";
}

TEST(RolePlanner, PromptsThatKeepMoreWorkersBusyMakeADecodeWorkerPrefill) {
  PlannedFleet it(1, 3);
  it.fleet.workers[1].active = 2;
  it.fleet.workers[2].active = 1;
  it.fleet.workers[3].active = 2;
  EXPECT_GE(it.LooksUntilFlip(2, 0.5), RolePlanner::kLooks) << "all looks of a period agree";
  const RoleWish& wish = it.planner.wish();
  EXPECT_EQ(wish.wanted_prefill_workers, 3);
  EXPECT_NEAR(wish.wanted_prefill_share(), 0.8, 0.05);
  EXPECT_EQ(wish.flip->to, WorkerRole::kPrefill);
  EXPECT_EQ(wish.flip->worker_id, "worker-3") << "the least loaded one";
  EXPECT_THAT(wish.reason, HasSubstr("1 prefill and 3 decode workers"));
  it.Flip();
  EXPECT_EQ(it.LooksUntilFlip(2, 0.5, RolePlanner::kLooks - 1), 0) << "one flip each period";
  EXPECT_EQ(it.LooksUntilFlip(2, 0.5, 1), 1);
  EXPECT_NE(it.planner.wish().flip->worker_id, "worker-3");
  it.Flip();
  EXPECT_EQ(it.LooksUntilFlip(2, 0.5), 0) << "the split is the best one";
  EXPECT_THAT(it.planner.wish().reason, HasSubstr("the least of all splits"));
}

TEST(RolePlanner, ThereIsNoFloorThatLoadCannotMove) {
  PlannedFleet it(2, 2);
  ASSERT_GT(it.LooksUntilFlip(0.05, 3), 0);
  EXPECT_EQ(it.Flip().to, WorkerRole::kDecode);
  ASSERT_GT(it.LooksUntilFlip(0.05, 3), 0) << "the last prefill worker helps, too";
  EXPECT_EQ(it.Flip().to, WorkerRole::kDecode);
  EXPECT_EQ(it.Count(WorkerRole::kPrefill), 0);
  ASSERT_GT(it.LooksUntilFlip(2.5, 1), 0) << "and comes back with the prompts";
  EXPECT_EQ(it.Flip().to, WorkerRole::kPrefill);
}

TEST(RolePlanner, AtLeastOneWorkerKeepsDecoding) {
  PlannedFleet it(2, 1);
  EXPECT_EQ(it.LooksUntilFlip(5, 0.01), 0);
  PlannedFleet with_both(1, 2, 1);
  ASSERT_GT(with_both.LooksUntilFlip(5, 0.01), 0);
  with_both.Flip();
  ASSERT_GT(with_both.LooksUntilFlip(5, 0.01), 0);
  with_both.Flip();
  EXPECT_EQ(with_both.Count(WorkerRole::kDecode), 0) << "the one with both roles decodes";
}

TEST(RolePlanner, QueuedPromptsCountAsDemand) {
  PlannedFleet it(1, 3);
  for (int i = 0; i < 8; ++i) it.Look(0.5, 0.3);
  EXPECT_LT(it.planner.wish().prefill_demand, 0.6);
  it.fleet.workers[0].prompts = {{.tokens = 1, .us = 2 * kPeriodUs}};
  it.fleet.workers[0].pending = it.fleet.workers[0].prompts[0];
  it.fleet.workers[0].prefilling_since_us = it.now_us + kPeriodUs * 100;
  for (int i = 0; i < 40; ++i) it.Look(0.5, 0.3);
  EXPECT_NEAR(it.planner.wish().prefill_demand, 2.5, 0.1);
}

TEST(RolePlanner, SequencesThatWaitOrFillThePoolCountAsDemand) {
  PlannedFleet it(2, 2);
  it.fleet.workers[2].report.available_blocks = 100;
  it.fleet.workers[3].report.queued = 128;
  for (int i = 0; i < 8; ++i) it.Look(0.5, 0.1);
  EXPECT_NEAR(it.planner.wish().decode_demand, 0.9 + 2, 0.05);
}

TEST(RolePlanner, SequencesThatWaitForBlocksNeedAsManyAsTheOthersHave) {
  PlannedFleet it(3, 1);
  WorkerRecord& decode = it.fleet.workers[3];
  decode.report.available_blocks = 50;  // of 1000
  decode.report.queued = 30;
  decode.report.waiting = 20;
  for (int i = 0; i < 8; ++i) it.Look(0.5, 0.1);
  EXPECT_NEAR(it.planner.wish().decode_demand, 0.95 * 3, 0.05);
  ASSERT_GT(it.LooksUntilFlip(0.5, 0.1), 0);
  EXPECT_EQ(it.Flip().to, WorkerRole::kDecode);
  // One long sequence may lack blocks while the pool is less full.
  decode.report.available_blocks = 150;
  decode.report.queued = 40;
  decode.report.waiting = 35;
  for (int i = 0; i < 40; ++i) it.Look(0.5, 0.1);
  EXPECT_NEAR(it.planner.wish().decode_demand, 0.85 * 8, 0.05);
  decode.report.queued = 60;
  decode.report.waiting = 58;
  for (int i = 0; i < 40; ++i) it.Look(0.5, 0.1);
  EXPECT_NEAR(it.planner.wish().decode_demand, 8, 0.05) << "at most eight times its pool";
  // With room in the pool, they wait for something else.
  PlannedFleet other(3, 1);
  other.fleet.workers[3].report.available_blocks = 500;
  other.fleet.workers[3].report.queued = 30;
  other.fleet.workers[3].report.waiting = 20;
  for (int i = 0; i < 8; ++i) other.Look(0.5, 0.1);
  EXPECT_NEAR(other.planner.wish().decode_demand, 0.5, 0.05);
}

TEST(RolePlanner, RequestsOfOtherRoutersCountInProportion) {
  PlannedFleet it(2, 2);
  it.fleet.workers[0].active = 2;
  it.fleet.workers[0].others = 4;
  for (int i = 0; i < 8; ++i) it.Look(0.5, 0.1);
  EXPECT_NEAR(it.planner.wish().prefill_demand, 1.5, 0.05);
}

TEST(RolePlanner, TheRestMustHaveRoomForTheKvOfAWorkerThatGoes) {
  PlannedFleet it(1, 2);
  for (int worker : {1, 2}) it.fleet.workers[worker].report.available_blocks = 500;
  EXPECT_EQ(it.LooksUntilFlip(4, 0.5), 0);
  for (int worker : {1, 2}) it.fleet.workers[worker].report.available_blocks = 900;
  EXPECT_GT(it.LooksUntilFlip(4, 0.5), 0);
}

TEST(RolePlanner, AFleetWithLittleToDoAndASmallGainChangeNothing) {
  PlannedFleet idle(1, 3);
  EXPECT_EQ(idle.LooksUntilFlip(0.35, 0.01), 0);
  EXPECT_THAT(idle.planner.wish().reason, HasSubstr("the load is too low to change roles"));
  PlannedFleet even(2, 3);
  EXPECT_EQ(even.LooksUntilFlip(2, 2), 0) << "3 and 2 are as good";
  EXPECT_EQ(even.LooksUntilFlip(2.2, 1.6), 0) << "3 and 2 are hardly better";
}

TEST(RolePlanner, OnlyRestedWorkersThatKnowRolesAndAnswerAreFlipped) {
  PlannedFleet it(1, 3);
  it.fleet.workers[1].report.changes_role = false;
  it.fleet.workers[2].role_since_us = it.now_us + kPeriodUs;
  it.fleet.workers[3].silent = true;
  EXPECT_EQ(it.LooksUntilFlip(2, 0.3, 12), 0);
  EXPECT_THAT(it.planner.wish().reason, HasSubstr("no worker may change its role now"));
  EXPECT_GT(it.LooksUntilFlip(2, 0.3), 0);
  EXPECT_EQ(it.planner.wish().flip->worker_id, "worker-3");
}

TEST(RolePlanner, ConstantLoadWithNoiseCausesNoFlipsOnceTheSplitFitsIt) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    std::mt19937_64 random(seed);
    const auto uniform = [&] { return static_cast<double>(random() % 1000) / 1000; };
    const int workers = 2 + static_cast<int>(random() % 7);
    const int prefill = 1 + static_cast<int>(random() % static_cast<uint64_t>(workers - 1));
    const double use = 0.4 + 0.5 * uniform();
    PlannedFleet it(1, workers - 1);
    int flips = 0;
    for (int i = 0; i < 400; ++i) {
      const RoleWish& wish = it.Look(prefill * use * (0.7 + 0.6 * uniform()),
                                     (workers - prefill) * use * (0.7 + 0.6 * uniform()));
      if (!wish.flip) continue;
      it.Flip();
      ++flips;
      EXPECT_LT(i, 200) << "seed " << seed;
    }
    EXPECT_LE(flips, workers) << "seed " << seed;
  }
}

TEST(RolePlanner, ASwingOfTheLoadFlipsEachWorkerAtMostOnce) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    std::mt19937_64 random(seed);
    const auto noise = [&] { return 0.8 + 0.4 * static_cast<double>(random() % 1000) / 1000; };
    PlannedFleet it(4, 4);
    for (int swing = 0; swing < 6; ++swing) {
      const bool prompts = swing % 2 == 0;
      std::map<std::string, int> flips;
      for (int i = 0; i < 80; ++i) {
        const RoleWish& wish =
            it.Look((prompts ? 5.2 : 0.9) * noise(), (prompts ? 0.9 : 5.2) * noise());
        if (wish.flip) ++flips[it.Flip().worker_id];
      }
      for (const auto& [worker, count] : flips) {
        EXPECT_EQ(count, 1) << worker << " in swing " << swing << ", seed " << seed;
      }
      EXPECT_GE(it.Count(prompts ? WorkerRole::kPrefill : WorkerRole::kDecode), 6)
          << "swing " << swing << ", seed " << seed;
    }
  }
}

}  // namespace
}  // namespace baton
