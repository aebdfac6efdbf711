// Requests that no decode worker has room for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "router/request_flow.h"
#include "tests/router/route_plans.h"

namespace baton {
namespace {

using Kind = FlowAction::Kind;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(RequestFlowQueueing, WhenEveryWorkerRefusesAHandOffItWaitsForRoom) {
  RequestFlow flow(3, 2);
  flow.Start();
  EXPECT_FALSE(flow.OnRoute(Remote())[1].queues_for_kv);
  EXPECT_THAT(Kinds(flow.OnDecodeFailed(1, absl::ResourceExhaustedError("no room"))),
              ElementsAre(Kind::kChooseRoute));
  flow.OnRoute({.decode = WorkerNumber(3), .prefill = WorkerNumber(2)});
  flow.OnDecodeFailed(2, absl::UnavailableError("gone"));
  EXPECT_FALSE(flow.queues_for_kv());
  EXPECT_THAT(Kinds(flow.OnNoRoute(absl::UnavailableError("no worker"))),
              ElementsAre(Kind::kChooseRoute));
  EXPECT_TRUE(flow.queues_for_kv());
  EXPECT_EQ(flow.placement(), Placement::kAutomatic);
  EXPECT_FALSE(flow.excluded().contains(WorkerNumber(1)));
  EXPECT_TRUE(flow.excluded().contains(WorkerNumber(3))) << "it is gone, not full";
  const auto opened = flow.OnRoute(Remote());
  ASSERT_THAT(Kinds(opened), ElementsAre(Kind::kOpenDecode));
  EXPECT_TRUE(opened[0].remote_prefill);
  EXPECT_TRUE(opened[0].queues_for_kv);
  EXPECT_THAT(Kinds(flow.OnTicket(3)), ElementsAre(Kind::kSendPrefill));
}

// A worker of an earlier version does not know that it may queue the request. A queue may be full.
TEST(RequestFlowQueueing, WhenNoWorkerQueuesAHandOffOneIsAskedToPrefillItself) {
  RequestFlow flow(2, 2);
  const RoutePlan other = {.decode = WorkerNumber(3), .prefill = WorkerNumber(2)};
  flow.Start();
  flow.OnRoute(Remote());
  EXPECT_FALSE(flow.asked_before());
  flow.OnDecodeFailed(1, absl::ResourceExhaustedError("full"));
  EXPECT_TRUE(flow.asked_before());
  flow.OnRoute(other);
  flow.OnDecodeFailed(2, absl::ResourceExhaustedError("full"));
  ASSERT_TRUE(flow.queues_for_kv()) << "two attempts";
  EXPECT_THAT(flow.excluded(), IsEmpty());
  flow.OnRoute(Remote());
  EXPECT_THAT(Kinds(flow.OnDecodeFailed(3, absl::ResourceExhaustedError("its queue is full"))),
              ElementsAre(Kind::kChooseRoute));
  EXPECT_TRUE(flow.queues_for_kv()) << "the other worker may queue it";
  EXPECT_THAT(flow.excluded(), ElementsAre(WorkerNumber(1)));
  flow.OnRoute(other);
  EXPECT_THAT(Kinds(flow.OnDecodeFailed(4, absl::ResourceExhaustedError("full"))),
              ElementsAre(Kind::kChooseRoute));
  EXPECT_EQ(flow.placement(), Placement::kLocal);
  EXPECT_FALSE(flow.queues_for_kv());
  EXPECT_THAT(flow.excluded(), IsEmpty());
  const auto opened = flow.OnRoute(Local());
  ASSERT_THAT(Kinds(opened), ElementsAre(Kind::kOpenDecode));
  EXPECT_FALSE(opened[0].remote_prefill);
  EXPECT_FALSE(opened[0].queues_for_kv);
  // The flow tries this only once.
  const auto last = flow.OnDecodeFailed(5, absl::ResourceExhaustedError("its queue too"));
  ASSERT_THAT(Kinds(last), ElementsAre(Kind::kFail));
  EXPECT_EQ(last[0].status.message(), "its queue too");
}

TEST(RequestFlowQueueing, ARequestThatCannotWaitForRoomIsPrefilledLocallyAtOnce) {
  RequestFlow flow(1, 2);
  flow.Start(Placement::kAutomatic, /*hand_offs_queue=*/false);
  flow.OnRoute(Remote());
  flow.OnDecodeFailed(1, absl::ResourceExhaustedError("full"));
  EXPECT_FALSE(flow.queues_for_kv());
  EXPECT_EQ(flow.placement(), Placement::kLocal);
  RequestFlow demanded(1, 2);
  demanded.Start(Placement::kRemote, /*hand_offs_queue=*/false);
  demanded.OnRoute(Remote());
  EXPECT_THAT(Kinds(demanded.OnDecodeFailed(1, absl::ResourceExhaustedError("full"))),
              ElementsAre(Kind::kFail));
}

TEST(RequestFlowQueueing, WhereNoPairIsLeftToQueueForOneIsAskedToPrefillItself) {
  RequestFlow flow(3, 2);
  flow.Start();
  flow.OnRoute(Remote());
  flow.OnDecodeFailed(1, absl::ResourceExhaustedError("no room"));
  flow.OnNoRoute(absl::UnavailableError("no other"));
  ASSERT_TRUE(flow.queues_for_kv());
  EXPECT_THAT(Kinds(flow.OnNoRoute(absl::UnavailableError("no pair"))),
              ElementsAre(Kind::kChooseRoute));
  EXPECT_EQ(flow.placement(), Placement::kLocal);
  EXPECT_THAT(Kinds(flow.OnNoRoute(absl::UnavailableError("nobody"))), ElementsAre(Kind::kFail));
}

TEST(RequestFlowQueueing, WhereAWorkerDiesOverAQueuedRequestTheNextOneQueuesIt) {
  RequestFlow flow(2, 2);
  flow.Start();
  flow.OnRoute(Remote());
  flow.OnDecodeFailed(1, absl::ResourceExhaustedError("no room"));
  flow.OnNoRoute(absl::UnavailableError("no other"));
  ASSERT_TRUE(flow.queues_for_kv());
  flow.OnRoute(Remote());
  EXPECT_TRUE(flow.MayLoseDecode()) << "a silent worker can be left";
  EXPECT_THAT(Kinds(flow.OnDecodeFailed(2, absl::UnavailableError("gone"))),
              ElementsAre(Kind::kChooseRoute));
  EXPECT_TRUE(flow.queues_for_kv());
  flow.OnRoute({.decode = WorkerNumber(3), .prefill = std::nullopt});
  EXPECT_THAT(Kinds(flow.OnDecodeFailed(3, absl::UnavailableError("gone too"))),
              ElementsAre(Kind::kChooseRoute));
  flow.OnRoute({.decode = WorkerNumber(4), .prefill = std::nullopt});
  flow.OnDecodeFailed(4, absl::UnavailableError("and this one"));
  EXPECT_EQ(flow.placement(), Placement::kLocal) << "the attempts have a limit";
  EXPECT_TRUE(flow.excluded().contains(WorkerNumber(1))) << "it is gone, not full";
  flow.OnRoute({.decode = WorkerNumber(5), .prefill = std::nullopt});
  EXPECT_THAT(Kinds(flow.OnDecodeFailed(5, absl::UnavailableError("one more"))),
              ElementsAre(Kind::kChooseRoute));
  flow.OnRoute({.decode = WorkerNumber(6), .prefill = std::nullopt});
  EXPECT_FALSE(flow.MayLoseDecode());
  EXPECT_THAT(Kinds(flow.OnDecodeFailed(6, absl::UnavailableError("the last"))),
              ElementsAre(Kind::kFail));
}

TEST(RequestFlowQueueing, ADemandedHandOffWaitsForRoomButIsNotPrefilledLocally) {
  RequestFlow flow(3, 2);
  flow.Start(Placement::kRemote);
  flow.OnRoute(Remote());
  flow.OnDecodeFailed(1, absl::ResourceExhaustedError("full"));
  EXPECT_THAT(Kinds(flow.OnNoRoute(absl::UnavailableError("no worker"))),
              ElementsAre(Kind::kChooseRoute));
  EXPECT_TRUE(flow.queues_for_kv());
  EXPECT_EQ(flow.placement(), Placement::kRemote);
  flow.OnRoute(Remote());
  EXPECT_THAT(Kinds(flow.OnDecodeFailed(2, absl::ResourceExhaustedError("its queue is full"))),
              ElementsAre(Kind::kChooseRoute));
  EXPECT_THAT(Kinds(flow.OnNoRoute(absl::UnavailableError("no other"))), ElementsAre(Kind::kFail));
}

}  // namespace
}  // namespace baton
