#include "router/kv_event_subscriptions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using End = KvEventSubscriptions::End;

class KvEventSubscriptionsTest : public ::testing::Test {
 protected:
  KvEventSubscriptionsTest() {
    for (const uint64_t number : {1, 2, 3}) index_.Add(WorkerNumber(number), Epoch(7), 0);
  }
  static WorkerRecord Worker(uint64_t number, bool prefix_cache = true) {
    WorkerRecord worker;
    worker.number = WorkerNumber(number);
    worker.report.prefix_cache = prefix_cache;
    return worker;
  }
  // Streams that this Tick opened.
  std::vector<WorkerNumber> Tick(const std::vector<WorkerRecord>& workers, int64_t now_us) {
    std::vector<WorkerNumber> opened;
    subscriptions_.Tick(
        workers, now_us,
        [&](const WorkerRecord& worker, const KvEventPosition&) {
          opened.push_back(worker.number);
        },
        [&](WorkerNumber number) { cancelled_.push_back(number); });
    return opened;
  }
  End EndOf(uint64_t number, const absl::Status& status, bool progressed, int64_t now_us) {
    return subscriptions_.OnEnd(WorkerNumber(number), status, progressed, now_us);
  }

  // Why the index does not follow this worker.
  std::string Trouble(uint64_t number) {
    for (const FollowedWorker& followed : index_.Status().workers) {
      if (followed.worker == WorkerNumber(number)) return followed.trouble;
    }
    return "no such worker";
  }

  FleetIndex index_{{.max_units = 16, .key_seeds = {}}};
  KvEventSubscriptions subscriptions_{&index_};
  std::vector<WorkerNumber> cancelled_;
};

TEST_F(KvEventSubscriptionsTest, OpensOneStreamForEachWorkerThatKeepsAPrefixCache) {
  const std::vector<WorkerRecord> workers = {Worker(1), Worker(2, /*prefix_cache=*/false),
                                             Worker(3)};
  EXPECT_THAT(Tick(workers, 0), ElementsAre(WorkerNumber(1), WorkerNumber(3)));
  EXPECT_THAT(Tick(workers, 10), IsEmpty());
}

TEST_F(KvEventSubscriptionsTest, OpensTheStreamOfAWorkerOnceTheIndexKnowsIt) {
  EXPECT_THAT(Tick({Worker(4)}, 0), IsEmpty());
  index_.Add(WorkerNumber(4), Epoch(7), 1);
  EXPECT_THAT(Tick({Worker(4)}, 1), ElementsAre(WorkerNumber(4)));
}

TEST_F(KvEventSubscriptionsTest, CancelsOnlyOpenStreamsOfWorkersThatAreGone) {
  Tick({Worker(1), Worker(2)}, 0);
  EXPECT_EQ(EndOf(2, absl::UnavailableError("gone"), false, 0), End::kRetried);
  EXPECT_THAT(Trouble(2), HasSubstr("gone"));
  EXPECT_THAT(Tick({}, 1), IsEmpty());
  EXPECT_THAT(cancelled_, ElementsAre(WorkerNumber(1)));
  EXPECT_EQ(EndOf(1, absl::CancelledError("cancelled"), true, 2), End::kForgotten);
}

TEST_F(KvEventSubscriptionsTest, DoublesThePauseUntilAStreamMakesProgress) {
  const absl::Status lost = absl::UnavailableError("lost");
  int64_t now_us = 0;
  for (const int64_t pause_us :
       {100'000, 200'000, 400'000, 800'000, 1'600'000, 2'000'000, 2'000'000}) {
    EXPECT_THAT(Tick({Worker(1)}, now_us), ElementsAre(WorkerNumber(1))) << now_us;
    EXPECT_EQ(EndOf(1, lost, /*progressed=*/false, now_us), End::kRetried);
    EXPECT_THAT(Tick({Worker(1)}, now_us + pause_us - 1), IsEmpty()) << pause_us;
    now_us += pause_us;
  }
  Tick({Worker(1)}, now_us);
  EndOf(1, lost, /*progressed=*/true, now_us);
  EXPECT_THAT(Tick({Worker(1)}, now_us + 100'000), ElementsAre(WorkerNumber(1)));
}

TEST_F(KvEventSubscriptionsTest, AWorkerThatHasNoEventsIsNotAskedAgain) {
  for (const absl::Status& status :
       {absl::UnimplementedError("old build"), absl::FailedPreconditionError("no cache")}) {
    subscriptions_ = KvEventSubscriptions(&index_);
    Tick({Worker(1)}, 0);
    EXPECT_EQ(EndOf(1, status, false, 0), End::kCannotTell);
    EXPECT_THAT(Tick({Worker(1)}, 3'600'000'000), IsEmpty());
    EXPECT_THAT(Trouble(1), HasSubstr(std::string(status.message())));
  }
}

}  // namespace
}  // namespace baton
