#include "router/kv_event_intake.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

const WorkerNumber kWorker(1);

class KvEventIntakeTest : public ::testing::Test {
 protected:
  KvEventIntakeTest() { index_.Add(kWorker, Epoch(7), 0); }
  static KvEventMessage First(uint64_t epoch = 7) {
    KvEventMessage message;
    message.epoch = Epoch(epoch);
    return message;
  }

  FleetIndex index_{{.max_units = 16, .key_seeds = {}}};
  KvEventIntake intake_{&index_, kWorker};
};

TEST_F(KvEventIntakeTest, AStreamWithAMessageHasMadeProgressAndEndsWithTheStatusOfItsCall) {
  EXPECT_FALSE(intake_.OnCallEnded(absl::OkStatus()).progressed);
  EXPECT_TRUE(intake_.Take(First()));
  const KvEventIntake::End end = intake_.OnCallEnded(absl::UnavailableError("lost"));
  EXPECT_TRUE(end.progressed);
  EXPECT_EQ(end.status, absl::UnavailableError("lost"));
}

TEST_F(KvEventIntakeTest, ARefusedMessageGivesTheErrorOfTheEndAndNoProgress) {
  EXPECT_TRUE(intake_.Take(First()));
  EXPECT_FALSE(intake_.Take(First(/*epoch=*/8)));
  EXPECT_EQ(intake_.stopped_by().code(), absl::StatusCode::kAborted);
  EXPECT_FALSE(intake_.Take(First())) << "it was sent before the stop";
  const KvEventIntake::End end = intake_.OnCallEnded(absl::CancelledError("cancelled"));
  EXPECT_EQ(end.status, intake_.stopped_by());
  EXPECT_FALSE(end.progressed);
}

TEST_F(KvEventIntakeTest, AfterStopNoMessageReachesTheIndex) {
  intake_.Stop(absl::ResourceExhaustedError("full"));
  EXPECT_FALSE(intake_.Take(First()));
  EXPECT_EQ(intake_.OnCallEnded(absl::OkStatus()).status, absl::ResourceExhaustedError("full"));
  EXPECT_FALSE(index_.IsFollowed(kWorker));
}

}  // namespace
}  // namespace baton
