#include "routing/worker_registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

#include "tests/routing/registered_workers.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

TEST(WorkerReport, HasRoomForATokenWhoseKvIsNeverWritten) {
  WorkerReport report;
  EXPECT_EQ(report.RoomFor(5000), 5000) << "the worker reported no limit";
  report.pool_tokens = 160;
  EXPECT_EQ(report.RoomFor(5000), 161);
  EXPECT_EQ(report.RoomFor(160), 160);
  report.paged = false;
  EXPECT_EQ(report.RoomFor(5000), 160) << "a contiguous pool reserves the whole sequence";
  report.paged = true;
  report.context_length = 160;
  EXPECT_EQ(report.RoomFor(5000), 160);
}

TEST(WorkerReport, HasRoomForAChunkedPromptByItsPositionsAndBlocks) {
  WorkerReport report;
  report.block_size = 16;
  PromptShape shape;
  shape.shared_positions = 1000;
  shape.padding[4] = 40;
  EXPECT_EQ(report.RoomFor(5000, shape), 5000) << "the worker reported no limit";
  report.context_length = 512;
  EXPECT_EQ(report.RoomFor(5000, shape), 1512);
  EXPECT_EQ(report.RoomFor(1400, shape), 1400);
  report.pool_tokens = 800;
  EXPECT_EQ(report.RoomFor(5000, shape), 800 + 1 - 40);
  report.block_size = 8;
  EXPECT_EQ(report.RoomFor(5000, shape), 801);
  shape.padding[3] = 2000;
  EXPECT_EQ(report.RoomFor(5000, shape), 0) << "the parts alone do not fit";
}

TEST_F(WorkerRegistryTest, AWorkerStaysRegisteredWhileItsHeartbeatsArrive) {
  ASSERT_TRUE(registry_.Heartbeat(Report("a", 1)).ok());
  for (int i = 0; i < 5; ++i) {
    clock_.AdvanceUs(2'900'000);
    ASSERT_TRUE(registry_.Heartbeat(Report("a", 1)).ok());
  }
  clock_.AdvanceUs(3'000'000);
  registry_.Expire();
  EXPECT_EQ(registry_.workers().size(), 1);
  clock_.AdvanceUs(1);
  registry_.Expire();
  EXPECT_TRUE(registry_.workers().empty());
}

TEST_F(WorkerRegistryTest, ASilentWorkerMayComeBackAsAnotherIncarnation) {
  ASSERT_TRUE(registry_.Heartbeat(Report("a", 1)).ok());
  const WorkerNumber before = NumberOf("a");
  clock_.AdvanceUs(4'000'000);
  ASSERT_TRUE(registry_.Heartbeat(Report("a", 1)).ok());
  EXPECT_NE(NumberOf("a"), before);
  EXPECT_THAT(registry_.TakeDeparted(), ElementsAre(before));
}

TEST_F(WorkerRegistryTest, ANewEpochReplacesTheOldAndTheOldIsRefused) {
  ASSERT_TRUE(registry_.Heartbeat(Report("a", 7)).ok());
  const WorkerNumber before = NumberOf("a");
  clock_.AdvanceUs(2'000'000);
  ASSERT_TRUE(registry_.Heartbeat(Report("a", 5)).ok());
  EXPECT_EQ(registry_.workers().size(), 1);
  EXPECT_THAT(registry_.TakeDeparted(), ElementsAre(before));
  const absl::Status status = registry_.Heartbeat(Report("a", 7));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("epoch 7"));
  EXPECT_EQ(registry_.workers()[0].report.epoch, Epoch(5));
}

TEST_F(WorkerRegistryTest, HeartbeatsOfAWorkerThatLeftAreRefused) {
  ASSERT_TRUE(registry_.Heartbeat(Report("a", 1)).ok());
  registry_.Leave("a", Epoch(2));
  EXPECT_EQ(registry_.workers().size(), 1);
  registry_.Leave("a", Epoch(1));
  EXPECT_TRUE(registry_.workers().empty());
  EXPECT_FALSE(registry_.Heartbeat(Report("a", 1)).ok());
  EXPECT_TRUE(registry_.Heartbeat(Report("a", 2)).ok());
}

TEST_F(WorkerRegistryTest, AnIdInUseIsRefusedUntilItsWorkerIsSilent) {
  ASSERT_TRUE(registry_.Heartbeat(Report("a", 1)).ok());
  const WorkerNumber first = NumberOf("a");
  clock_.AdvanceUs(1'999'999);
  const absl::Status status = registry_.Heartbeat(Report("a", 2));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("worker id a is in use"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("1999 ms ago"));
  EXPECT_TRUE(registry_.Heartbeat(Report("a", 1)).ok())
      << "the refused heartbeat evicted no worker";
  EXPECT_EQ(NumberOf("a"), first);
  clock_.AdvanceUs(1'000'000);
  EXPECT_FALSE(registry_.Heartbeat(Report("a", 2)).ok()) << "its last heartbeat was a second ago";
  clock_.AdvanceUs(1'000'000);
  EXPECT_TRUE(registry_.Heartbeat(Report("a", 2)).ok());
  EXPECT_THAT(registry_.TakeDeparted(), ElementsAre(first));
}

TEST_F(WorkerRegistryTest, ARoleMayChangeAndTheWorkersRequestsStay) {
  WorkerReport report = Report("a", 1);
  report.role = WorkerRole::kPrefill;
  ASSERT_TRUE(registry_.Heartbeat(report).ok());
  const WorkerNumber number = NumberOf("a");
  registry_.AddActive(number);
  registry_.AddPrefill(number, {.tokens = 5, .us = 7});
  EXPECT_EQ(registry_.TakeChanges().size(), 1u) << "it joined";
  report.role = WorkerRole::kDecode;
  ASSERT_TRUE(registry_.Heartbeat(report).ok());
  EXPECT_EQ(NumberOf("a"), number) << "the index keeps what it knows of the worker's cache";
  const WorkerRecord& worker = *registry_.Find(number);
  EXPECT_TRUE(worker.CanDecode());
  EXPECT_FALSE(worker.CanPrefill());
  EXPECT_EQ(worker.active, 1);
  EXPECT_EQ(worker.pending.tokens, 5);
  const std::vector<FleetChange> changes = registry_.TakeChanges();
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].kind, FleetChange::Kind::kRoleChanged);
  EXPECT_EQ(changes[0].report.role, WorkerRole::kDecode);
  ASSERT_TRUE(registry_.Heartbeat(report).ok());
  EXPECT_THAT(registry_.TakeChanges(), IsEmpty());
}

TEST_F(WorkerRegistryTest, AnIdIsFreeAtOnceWhenItsWorkerHasLeft) {
  ASSERT_TRUE(registry_.Heartbeat(Report("a", 1)).ok());
  registry_.Leave("a", Epoch(1));
  EXPECT_TRUE(registry_.Heartbeat(Report("a", 2)).ok());
}

TEST_F(WorkerRegistryTest, AnAddressInUseIsRefusedEvenForARegisteredWorker) {
  ASSERT_TRUE(registry_.Heartbeat(Report("a", 1)).ok());
  ASSERT_TRUE(registry_.Heartbeat(Report("b", 1)).ok());
  WorkerReport moved = Report("b", 1);
  moved.address = "a:1";
  const absl::Status status = registry_.Heartbeat(moved);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("address a:1 is in use by worker a"));
  EXPECT_EQ(registry_.workers().size(), 2);
  clock_.AdvanceUs(2'000'000);
  EXPECT_TRUE(registry_.Heartbeat(moved).ok());
  ASSERT_EQ(registry_.workers().size(), 1);
  EXPECT_EQ(registry_.workers()[0].report.id, "b");
}

TEST_F(WorkerRegistryTest, ARefusedTakeOverRemovesNoWorker) {
  ASSERT_TRUE(registry_.Heartbeat(Report("a", 1, "smol")).ok());
  clock_.AdvanceUs(2'500'000);
  ASSERT_TRUE(registry_.Heartbeat(Report("b", 1, "smol")).ok());
  EXPECT_THAT(std::string(registry_.Heartbeat(Report("a", 2, "other")).message()),
              HasSubstr("fleet's model smol"));
  EXPECT_TRUE(registry_.TakeDeparted().empty());
  EXPECT_TRUE(registry_.Heartbeat(Report("a", 1, "smol")).ok());
}

TEST_F(WorkerRegistryTest, AWorkerKeepsItsPrefixCacheForAnEpoch) {
  ASSERT_TRUE(registry_.Heartbeat(Report("a", 1)).ok());
  WorkerReport without = Report("a", 1);
  without.prefix_cache = false;
  EXPECT_THAT(std::string(registry_.Heartbeat(without).message()), HasSubstr("prefix cache"));
  EXPECT_TRUE(registry_.workers()[0].report.prefix_cache);
}

TEST_F(WorkerRegistryTest, ATakeOverFitsIntoAFullRegistry) {
  for (const char* id : {"a", "b", "c"}) ASSERT_TRUE(registry_.Heartbeat(Report(id, 1)).ok());
  clock_.AdvanceUs(2'000'000);
  EXPECT_TRUE(registry_.Heartbeat(Report("b", 2)).ok());
  EXPECT_EQ(registry_.workers().size(), 3);
}

TEST_F(WorkerRegistryTest, ANewWorkerAtAnAddressReplacesTheSilentOne) {
  ASSERT_TRUE(registry_.Heartbeat(Report("a", 1)).ok());
  WorkerReport report = Report("b", 2);
  report.address = "a:1";
  EXPECT_FALSE(registry_.Heartbeat(report).ok());
  clock_.AdvanceUs(2'000'000);
  ASSERT_TRUE(registry_.Heartbeat(report).ok());
  ASSERT_EQ(registry_.workers().size(), 1);
  EXPECT_EQ(registry_.workers()[0].report.id, "b");
}

TEST_F(WorkerRegistryTest, AnUnreachableWorkerIsUsableAgainWhenItHasAnswered) {
  ASSERT_TRUE(registry_.Heartbeat(Report("a", 1)).ok());
  registry_.MarkUnreachable(NumberOf("a"));
  EXPECT_FALSE(registry_.workers()[0].Usable());
  ASSERT_TRUE(registry_.Heartbeat(Report("a", 1)).ok());
  EXPECT_FALSE(registry_.workers()[0].Usable()) << "heartbeats arrive, but calls may not reach it";
  registry_.MarkReachable(NumberOf("a"));
  EXPECT_TRUE(registry_.workers()[0].Usable());
}

TEST_F(WorkerRegistryTest, ReportsChangesOfWorkersInOrder) {
  using Kind = FleetChange::Kind;
  const auto taken = [this] {
    std::vector<std::pair<Kind, std::string>> out;
    for (const FleetChange& change : registry_.TakeChanges()) {
      out.emplace_back(change.kind, change.report.id);
    }
    return out;
  };
  using Changes = std::vector<std::pair<Kind, std::string>>;
  for (const char* id : {"a", "b", "a"}) ASSERT_TRUE(registry_.Heartbeat(Report(id, 1)).ok());
  EXPECT_FALSE(registry_.Heartbeat(Report("c", 1, "another model")).ok());
  EXPECT_EQ(taken(), (Changes{{Kind::kJoined, "a"}, {Kind::kJoined, "b"}}));
  const WorkerNumber a = NumberOf("a");
  for (int i = 0; i < 2; ++i) registry_.MarkUnreachable(a);
  for (int i = 0; i < 2; ++i) registry_.MarkReachable(a);
  for (int i = 0; i < 2; ++i) registry_.SetSilent({a});
  for (int i = 0; i < 2; ++i) registry_.SetSilent({});
  EXPECT_EQ(taken(), (Changes{{Kind::kUnreachable, "a"},
                              {Kind::kReachable, "a"},
                              {Kind::kSilent, "a"},
                              {Kind::kAnswers, "a"}}));
  clock_.AdvanceUs(2'000'000);
  ASSERT_TRUE(registry_.Heartbeat(Report("a", 2)).ok());
  registry_.Leave("a", Epoch(2));
  registry_.Leave("a", Epoch(2));
  clock_.AdvanceUs(2'000'000);
  registry_.Expire();
  EXPECT_EQ(taken(), (Changes{{Kind::kReplaced, "a"},
                              {Kind::kJoined, "a"},
                              {Kind::kLeft, "a"},
                              {Kind::kExpired, "b"}}));
}

TEST_F(WorkerRegistryTest, UntakenChangesAreBounded) {
  for (uint64_t epoch = 1; epoch <= 1000; ++epoch) {
    ASSERT_TRUE(registry_.Heartbeat(Report("a", epoch)).ok());
    registry_.Leave("a", Epoch(epoch));
  }
  EXPECT_EQ(registry_.TakeChanges().size(), WorkerRegistry::kMostChanges);
}

TEST_F(WorkerRegistryTest, ASilentWorkerGetsNoRequestsIfAnotherCanReplaceIt) {
  WorkerReport other = Report("b", 1);
  WorkerReport prefill = Report("p", 1);
  prefill.role = WorkerRole::kPrefill;
  for (const WorkerReport& report : {Report("a", 1), other, prefill}) {
    ASSERT_TRUE(registry_.Heartbeat(report).ok());
  }
  const WorkerNumber a = NumberOf("a");
  const WorkerNumber b = NumberOf("b");
  const WorkerNumber p = NumberOf("p");
  EXPECT_THAT(registry_.SetSilent({a, p}), UnorderedElementsAre(a, p));
  EXPECT_FALSE(registry_.Find(a)->Usable());
  EXPECT_FALSE(registry_.Find(p)->Usable());
  EXPECT_TRUE(registry_.Find(b)->Usable());
  ASSERT_TRUE(registry_.Heartbeat(Report("a", 1)).ok());
  EXPECT_FALSE(registry_.Find(a)->Usable()) << "only its heartbeats arrive";

  EXPECT_THAT(registry_.SetSilent({a, b, p}), IsEmpty()) << "no other worker can serve";
  EXPECT_TRUE(registry_.Find(a)->Usable());
  EXPECT_THAT(registry_.SetSilent({}), IsEmpty());

  registry_.Leave("p", Epoch(1));
  EXPECT_THAT(registry_.SetSilent({p}), UnorderedElementsAre(p))
      << "its running calls can continue elsewhere";
}

TEST_F(WorkerRegistryTest, AWorkerOfAnotherFingerprintCanReplaceOnlyASilentPrefillWorker) {
  WorkerRegistry registry({.model = "", .mixed_fingerprints = true}, &clock_);
  WorkerReport other = Report("b", 1);
  other.fingerprint = "m-int8";
  WorkerReport prefill = Report("p", 1);
  prefill.role = WorkerRole::kPrefill;
  for (const WorkerReport& report : {Report("a", 1), other, prefill}) {
    ASSERT_TRUE(registry.Heartbeat(report).ok());
  }
  const WorkerNumber a = registry.workers()[0].number;
  const WorkerNumber p = registry.workers()[2].number;
  EXPECT_THAT(registry.SetSilent({a}), IsEmpty()) << "b cannot continue a's answers";
  EXPECT_THAT(registry.SetSilent({p}), UnorderedElementsAre(p));
}

TEST_F(WorkerRegistryTest, InvalidFieldsAreRefused) {
  EXPECT_EQ(registry_.Heartbeat(Report("", 1)).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(registry_.Heartbeat(Report("a", 0)).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(registry_.Heartbeat(Report("a", 1, "")).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(registry_.Heartbeat(Report(std::string(300, 'a'), 1)).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(registry_.workers().empty());
}

TEST_F(WorkerRegistryTest, TheNumberOfWorkersIsBounded) {
  for (const char* id : {"a", "b", "c"}) ASSERT_TRUE(registry_.Heartbeat(Report(id, 1)).ok());
  EXPECT_EQ(registry_.Heartbeat(Report("d", 1)).code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(WorkerRegistryTest, LoadIsThisRoutersRequestsAndThoseOfOthersAtTheLastHeartbeat) {
  WorkerReport report = Report("a", 1);
  report.queued = 2;  // of other routers
  ASSERT_TRUE(registry_.Heartbeat(report).ok());
  const WorkerNumber number = NumberOf("a");
  EXPECT_EQ(registry_.Find(number)->Load(), 2);
  for (int i = 0; i < 3; ++i) registry_.AddActive(number);
  EXPECT_EQ(registry_.Find(number)->Load(), 5);
  report.queued = 3;  // now it also counts ours, and the others have ended
  ASSERT_TRUE(registry_.Heartbeat(report).ok());
  EXPECT_EQ(registry_.Find(number)->Load(), 3);
  for (int i = 0; i < 3; ++i) registry_.RemoveActive(number);
  EXPECT_EQ(registry_.Find(number)->Load(), 0);  // at once, not at the next heartbeat
  EXPECT_EQ(registry_.Find(number)->assigned, 3);
}

TEST_F(WorkerRegistryTest, TheBacklogIsTheTimeOfWaitingPromptsLessTheTimeSpentOnTheFirst) {
  ASSERT_TRUE(registry_.Heartbeat(Report("a", 1)).ok());
  const WorkerNumber number = NumberOf("a");
  const auto backlog = [&] { return registry_.Find(number)->BacklogUs(clock_.NowUs()); };
  EXPECT_EQ(backlog(), 0);
  const PrefillWork first{.tokens = 10, .us = 1000};
  const PrefillWork second{.tokens = 20, .us = 300};
  registry_.AddPrefill(number, first);
  clock_.AdvanceUs(400);
  registry_.AddPrefill(number, second);
  EXPECT_EQ(backlog(), 900);
  EXPECT_EQ(registry_.Find(number)->pending.tokens, 30);
  clock_.AdvanceUs(5000);  // the first takes longer than expected
  EXPECT_EQ(backlog(), 300);
  registry_.RemovePrefill(number, first);
  EXPECT_EQ(backlog(), 300);  // the second has just begun
  clock_.AdvanceUs(100);
  EXPECT_EQ(backlog(), 200);
  registry_.RemovePrefill(number, second);
  EXPECT_EQ(backlog(), 0);
}

TEST_F(WorkerRegistryTest, AnUncountedPromptIsNotSubtracted) {
  ASSERT_TRUE(registry_.Heartbeat(Report("a", 1)).ok());
  const WorkerNumber number = NumberOf("a");
  registry_.AddPrefill(number, {.tokens = 10, .us = 1000});
  registry_.RemovePrefill(number, {.tokens = 11, .us = 1000});
  registry_.RemovePrefill(WorkerNumber(77), {.tokens = 10, .us = 1000});
  EXPECT_EQ(registry_.Find(number)->pending.us, 1000);
}

TEST(WorkerRegistry, NamesTheWorkersWhoseRecordsHaveChanged) {
  ManualClock clock;
  WorkerRegistry registry({.model = "", .expiry_us = 3'000'000, .notes_touched = true}, &clock);
  const auto report = [](const std::string& id) {
    WorkerReport it;
    it.id = it.address = id;
    it.epoch = Epoch(1);
    it.model = it.fingerprint = "m";
    return it;
  };
  for (const char* id : {"a", "b", "c"}) ASSERT_TRUE(registry.Heartbeat(report(id)).ok());
  constexpr WorkerNumber kFirst{1}, kSecond{2}, kThird{3};
  EXPECT_THAT(registry.TakeTouched(), ElementsAre(kFirst, kSecond, kThird));
  EXPECT_THAT(registry.TakeTouched(), IsEmpty());
  const PrefillWork work{.tokens = 5, .us = 10};
  registry.AddActive(kSecond);
  registry.AddPrefill(kSecond, work);
  registry.Touch(kThird);
  registry.Touch(WorkerNumber(77));
  EXPECT_THAT(registry.TakeTouched(), ElementsAre(kSecond, kThird)) << "each once";
  registry.RemovePrefill(kSecond, work);
  EXPECT_THAT(registry.TakeTouched(), ElementsAre(kSecond));
  registry.MarkUnreachable(kFirst);
  registry.Leave("c", Epoch(1));
  EXPECT_THAT(registry.TakeTouched(), ElementsAre(kFirst, kThird));
  registry.SetSilent({kSecond});
  clock.AdvanceUs(5'000'000);
  ASSERT_TRUE(registry.Heartbeat(report("a")).ok());
  EXPECT_THAT(registry.TakeTouched(), testing::Contains(kSecond)) << "it has expired";
  WorkerReport roomy = report("a");
  roomy.block_size = 16;
  for (const int32_t blocks : {64, 65}) {
    roomy.available_blocks = blocks;
    ASSERT_TRUE(registry.Heartbeat(roomy).ok());
    EXPECT_EQ(registry.TakeTouched().size(), blocks == 64 ? 1u : 0u) << "it is no longer full";
  }
}

TEST(WorkerRegistry, FindsWorkersAmongTheNumbersOfThoseThatLeft) {
  ManualClock clock;
  WorkerRegistry registry({.model = "", .expiry_us = 3'000'000}, &clock);
  for (uint32_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    uint32_t last = 0;
    for (int i = 0; i < 100; ++i) {
      WorkerReport it;
      it.id = it.address = std::to_string(seed) + "-" + std::to_string(i);
      it.epoch = Epoch(1);
      it.model = it.fingerprint = "m";
      ASSERT_TRUE(registry.Heartbeat(it).ok());
      last = registry.workers().back().number.value();
      const auto& workers = registry.workers();
      if (random() % 3 > 0) {
        registry.Leave(std::string(workers[random() % workers.size()].report.id), Epoch(1));
      }
    }
    std::map<uint32_t, const WorkerRecord*> present;
    for (const WorkerRecord& worker : registry.workers()) present[worker.number.value()] = &worker;
    for (uint32_t number = 0; number <= last + 2; ++number) {
      const auto it = present.find(number);
      EXPECT_EQ(registry.Find(WorkerNumber(number)), it == present.end() ? nullptr : it->second);
    }
  }
}

TEST(WorkerRegistry, CountsTheShapesOfThePoolsThatDecode) {
  ManualClock clock;
  WorkerRegistry registry({.model = "", .expiry_us = 3'000'000}, &clock);
  const auto beat = [&](const std::string& id, int64_t pool_tokens, WorkerRole role) {
    WorkerReport it;
    it.id = it.address = id;
    it.epoch = Epoch(1);
    it.model = it.fingerprint = "m";
    it.pool_tokens = pool_tokens;
    it.role = role;
    ASSERT_TRUE(registry.Heartbeat(it).ok());
  };
  beat("a", 100, WorkerRole::kDecode);
  beat("b", 100, WorkerRole::kBoth);
  beat("c", 300, WorkerRole::kPrefill);
  ASSERT_EQ(registry.room_shapes().size(), 1u);
  EXPECT_EQ(registry.room_shapes().begin()->second, 2);
  beat("b", 200, WorkerRole::kBoth);  // its pool was resized
  EXPECT_EQ(registry.room_shapes().size(), 2u);
  registry.Leave("a", Epoch(1));
  ASSERT_EQ(registry.room_shapes().size(), 1u);
  EXPECT_EQ(registry.room_shapes().begin()->first.pool_tokens, 200);
}

}  // namespace
}  // namespace baton
