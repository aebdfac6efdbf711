#include "router/worker_registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class WorkerRegistryTest : public ::testing::Test {
 protected:
  static WorkerReport Report(const std::string& id, uint64_t epoch,
                             const std::string& model = "m") {
    WorkerReport report;
    report.id = id;
    report.address = id + ":1";
    report.epoch = Epoch(epoch);
    report.model = model;
    report.fingerprint = model + "-f16";
    return report;
  }
  WorkerNumber NumberOf(const std::string& id) {
    for (const WorkerRecord& worker : registry_.workers()) {
      if (worker.report.id == id) return worker.number;
    }
    return WorkerNumber(0);
  }

  ManualClock clock_;
  WorkerRegistry registry_{{.expiry_us = 3'000'000, .max_workers = 3}, &clock_};
};

TEST_F(WorkerRegistryTest, AWorkerLivesAsLongAsItsHeartbeatsCome) {
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
  ASSERT_TRUE(registry_.Heartbeat(Report("a", 5)).ok());
  EXPECT_EQ(registry_.workers().size(), 1);
  EXPECT_THAT(registry_.TakeDeparted(), ElementsAre(before));
  const absl::Status status = registry_.Heartbeat(Report("a", 7));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("epoch 7"));
  EXPECT_EQ(registry_.workers()[0].report.epoch, Epoch(5));
}

TEST_F(WorkerRegistryTest, AWorkerThatLeftIsNotHeardAgain) {
  ASSERT_TRUE(registry_.Heartbeat(Report("a", 1)).ok());
  registry_.Leave("a", Epoch(2));
  EXPECT_EQ(registry_.workers().size(), 1);
  registry_.Leave("a", Epoch(1));
  EXPECT_TRUE(registry_.workers().empty());
  EXPECT_FALSE(registry_.Heartbeat(Report("a", 1)).ok());
  EXPECT_TRUE(registry_.Heartbeat(Report("a", 2)).ok());
}

TEST_F(WorkerRegistryTest, AnotherModelIsRefusedByNameWhileTheFleetLives) {
  ASSERT_TRUE(registry_.Heartbeat(Report("a", 1, "smol")).ok());
  const absl::Status status = registry_.Heartbeat(Report("b", 2, "other"));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("other"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("smol"));
  registry_.Leave("a", Epoch(1));
  EXPECT_TRUE(registry_.Heartbeat(Report("b", 2, "other")).ok());
  EXPECT_EQ(registry_.fleet_model(), "other");
}

TEST_F(WorkerRegistryTest, ANewWorkerAtAnAddressEndsTheOneBefore) {
  ASSERT_TRUE(registry_.Heartbeat(Report("a", 1)).ok());
  WorkerReport report = Report("b", 2);
  report.address = "a:1";
  ASSERT_TRUE(registry_.Heartbeat(report).ok());
  ASSERT_EQ(registry_.workers().size(), 1);
  EXPECT_EQ(registry_.workers()[0].report.id, "b");
}

TEST_F(WorkerRegistryTest, AnUnreachableWorkerIsUsableAgainAfterAHeartbeat) {
  ASSERT_TRUE(registry_.Heartbeat(Report("a", 1)).ok());
  registry_.MarkUnreachable(NumberOf("a"));
  EXPECT_FALSE(registry_.workers()[0].Usable());
  ASSERT_TRUE(registry_.Heartbeat(Report("a", 1)).ok());
  EXPECT_TRUE(registry_.workers()[0].Usable());
}

TEST_F(WorkerRegistryTest, FieldsWithoutSenseAreRefused) {
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

TEST_F(WorkerRegistryTest, LoadIsWhatTheWorkerSaysOrWhatThisRouterGaveIt) {
  WorkerReport report = Report("a", 1);
  report.queued = 2;
  ASSERT_TRUE(registry_.Heartbeat(report).ok());
  const WorkerNumber number = NumberOf("a");
  EXPECT_EQ(registry_.Find(number)->Load(), 2);
  for (int i = 0; i < 3; ++i) registry_.AddActive(number);
  EXPECT_EQ(registry_.Find(number)->Load(), 3);
  registry_.RemoveActive(number);
  registry_.RemoveActive(number);
  EXPECT_EQ(registry_.Find(number)->Load(), 2);
  EXPECT_EQ(registry_.Find(number)->assigned, 3);
}

}  // namespace
}  // namespace baton
