#include "worker_rpc/heartbeat_client.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/worker_rpc/fake_router.h"

namespace baton {
namespace {

constexpr int64_t kPatientMs = 60'000;  // a guard against a hang

v1::KvFingerprint Fingerprint() {
  v1::KvFingerprint fingerprint;
  fingerprint.set_model("m");
  return fingerprint;
}

// Returns statuses whose epochs count from 1.
class Statuses {
 public:
  std::function<v1::WorkerStatus()> Next() {
    return [this] {
      v1::WorkerStatus status;
      status.set_worker_id("w");
      status.set_epoch(++asked_);
      return status;
    };
  }

 private:
  std::atomic<uint64_t> asked_ = 0;
};

TEST(HeartbeatClient, EveryHeartbeatHasTheStatusOfItsTimeAndTheFingerprint) {
  FakeRouter router;
  Statuses statuses;
  HeartbeatClient client({router.address()}, Fingerprint(), statuses.Next());
  const std::vector<v1::HeartbeatRequest> heard = router.Heard(2);
  ASSERT_GE(heard.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(heard[i].status().worker_id(), "w");
    EXPECT_EQ(heard[i].status().epoch(), i + 1) << "each heartbeat has a new status";
    EXPECT_EQ(heard[i].fingerprint().model(), "m");
    EXPECT_FALSE(heard[i].leaving());
  }
}

TEST(HeartbeatClient, TellsTheRoleOfNowBesideTheRoleAtTheStart) {
  FakeRouter router;
  std::atomic<v1::WorkerRole> role = v1::WORKER_ROLE_PREFILL;
  HeartbeatClient client({router.address()}, Fingerprint(), [&role] {
    v1::WorkerStatus status;
    status.set_role(role);
    return status;
  });
  ASSERT_GE(router.Heard(1).size(), 1u);
  role = v1::WORKER_ROLE_DECODE;
  EXPECT_EQ(client.TellNow(kPatientMs), 1);
  const std::vector<v1::HeartbeatRequest> heard = router.Heard(2);
  EXPECT_EQ(heard.front().status().role(), v1::WORKER_ROLE_PREFILL);
  EXPECT_EQ(heard.front().current_role(), v1::WORKER_ROLE_PREFILL);
  EXPECT_EQ(heard.back().status().role(), v1::WORKER_ROLE_PREFILL)
      << "older routers refuse a worker whose role changes";
  EXPECT_EQ(heard.back().current_role(), v1::WORKER_ROLE_DECODE);
}

TEST(HeartbeatClient, TellsWhereItsMetricsAreAndCountsWhatRoutersAnswer) {
  FakeRouter accepts, refuses("another model");
  Statuses statuses;
  MetricSet metrics(MetricPrograms::kWorkers);
  {
    HeartbeatClient client({accepts.address(), refuses.address(), "127.0.0.1:1"}, Fingerprint(),
                           statuses.Next(), /*drain_ms=*/0, "10.0.0.1:9100", &metrics);
    const std::vector<v1::HeartbeatRequest> heard = accepts.Heard(2);
    ASSERT_GE(heard.size(), 2u);
    EXPECT_EQ(heard[0].metrics_address(), "10.0.0.1:9100");
    EXPECT_EQ(metrics.Cells(Metric::kWorkerRouters), 3);
    EXPECT_GE(metrics.Cells(Metric::kWorkerHeartbeats, HeartbeatOutcome::kAccepted), 1);
    EXPECT_EQ(metrics.Cells(Metric::kWorkerRoutersRegistered), 1);
    ASSERT_GE(refuses.Heard(2).size(), 2u);
    EXPECT_GE(metrics.Cells(Metric::kWorkerHeartbeats, HeartbeatOutcome::kRefused), 1);
  }
  EXPECT_GE(metrics.Cells(Metric::kWorkerHeartbeats, HeartbeatOutcome::kFailed), 1);
  EXPECT_GE(metrics.Cells(Metric::kWorkerHeartbeats, HeartbeatOutcome::kLeaving), 1);
  EXPECT_EQ(metrics.Cells(Metric::kWorkerRoutersRegistered), 0);
}

TEST(HeartbeatClient, ARefusedWorkerContinuesItsHeartbeats) {
  FakeRouter router("another model");
  Statuses statuses;
  HeartbeatClient client({router.address()}, Fingerprint(), statuses.Next());
  EXPECT_GE(router.Heard(2).size(), 2u);
}

TEST(HeartbeatClient, LeavingSendsEveryRouterOneGoodbye) {
  FakeRouter first, second;
  Statuses statuses;
  HeartbeatClient client({first.address(), second.address()}, Fingerprint(), statuses.Next());
  first.Heard(1);
  second.Heard(1);
  client.Leave();
  for (FakeRouter* router : {&first, &second}) {
    const std::vector<v1::HeartbeatRequest> heard = router->Heard(2);
    ASSERT_GE(heard.size(), 2u);
    EXPECT_TRUE(heard.back().leaving());
    for (size_t i = 0; i + 1 < heard.size(); ++i) EXPECT_FALSE(heard[i].leaving());
  }
  const size_t count = first.Heard(0).size();
  client.Leave();
  EXPECT_EQ(first.Heard(0).size(), count) << "no heartbeat after the goodbye";
}

TEST(HeartbeatClient, TheDestructorSendsAGoodbyeToo) {
  FakeRouter router;
  Statuses statuses;
  { HeartbeatClient client({router.address()}, Fingerprint(), statuses.Next()); }
  const std::vector<v1::HeartbeatRequest> heard = router.Heard(1);
  ASSERT_FALSE(heard.empty());
  EXPECT_TRUE(heard.back().leaving());
}

TEST(HeartbeatClient, AnUnreachableRouterDelaysNoOther) {
  std::string nowhere;
  {
    FakeRouter gone;
    nowhere = gone.address();
  }
  FakeRouter router;
  Statuses statuses;
  HeartbeatClient client({nowhere, router.address()}, Fingerprint(), statuses.Next());
  EXPECT_GE(router.Heard(3).size(), 3u);
  client.Leave();
  EXPECT_TRUE(router.Heard(1).back().leaving());
}

TEST(HeartbeatClient, ARouterThatRestartsAtItsAddressHearsFromTheWorker) {
  Statuses statuses;
  auto router = std::make_unique<FakeRouter>();
  const std::string address = router->address();
  HeartbeatClient client({address}, Fingerprint(), statuses.Next());
  ASSERT_FALSE(router->Heard(1).empty());
  router.reset();
  router = std::make_unique<FakeRouter>("", address);
  EXPECT_FALSE(router->Heard(1).empty());
}

TEST(HeartbeatClient, ARouterThatIsListedLaterGetsHeartbeats) {
  FakeRouter first, second;
  Statuses statuses;
  HeartbeatClient client({first.address()}, Fingerprint(), statuses.Next());
  EXPECT_EQ(client.routers(), 1);
  client.SetRouters({first.address(), second.address()});
  EXPECT_EQ(client.routers(), 2);
  EXPECT_FALSE(second.Heard(1).empty());
  client.Leave();
  EXPECT_TRUE(first.Heard(1).back().leaving());
  EXPECT_TRUE(second.Heard(1).back().leaving());
}

TEST(HeartbeatClient, TellsARouterItsPlaceAmongThoseThatHaveAcceptedTheWorker) {
  FakeRouter one, two, refusing("another model");
  Statuses statuses;
  HeartbeatClient client({one.address(), two.address(), refusing.address(), "127.0.0.1:1"},
                         Fingerprint(), statuses.Next());
  FakeRouter& first = one.address() < two.address() ? one : two;
  FakeRouter& second = one.address() < two.address() ? two : one;
  const auto last = [](FakeRouter& router) { return router.Heard(1).back(); };
  const auto know = [&] { return last(first).routers() == 2 && last(second).routers() == 2; };
  for (int i = 0; i < 300 && !know(); ++i) client.TellNow(/*timeout_ms=*/100);
  ASSERT_TRUE(know());
  EXPECT_EQ(last(first).router_place(), 0);
  EXPECT_EQ(last(second).router_place(), 1);
}

// A router that ends serves for some time after its name does not list it any more.
TEST(HeartbeatClient, ARouterThatIsNotListedAnyMoreGetsHeartbeatsWhileItAnswers) {
  FakeRouter router;
  Statuses statuses;
  HeartbeatClient client({router.address()}, Fingerprint(), statuses.Next());
  const size_t before = router.Heard(1).size();
  client.SetRouters({});
  const std::vector<v1::HeartbeatRequest> heard = router.Heard(before + 2);
  ASSERT_GE(heard.size(), before + 2);
  EXPECT_FALSE(heard.back().leaving());
  EXPECT_EQ(client.routers(), 1);
}

TEST(HeartbeatClient, ARouterThatIsNeitherListedNorAnswersIsForgotten) {
  MetricSet metrics(MetricPrograms::kWorkers);
  Statuses statuses;
  HeartbeatClient client({"127.0.0.1:1"}, Fingerprint(), statuses.Next(), /*drain_ms=*/0, "",
                         &metrics);
  client.SetRouters({});
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (client.routers() > 0 && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_EQ(client.routers(), 0);
  EXPECT_EQ(metrics.Cells(Metric::kWorkerRouters), 0);
  FakeRouter router;
  client.SetRouters({router.address()});
  EXPECT_FALSE(router.Heard(1).empty());
  EXPECT_EQ(client.routers(), 1);
}

// The newest size that the router has heard of.
int32_t NewestLimit(FakeRouter& router) {
  return router.Heard(1).back().status().pool().limit_blocks();
}

class HeartbeatClientTellNow : public ::testing::Test {
 protected:
  std::unique_ptr<HeartbeatClient> Client(std::vector<std::string> routers) {
    return std::make_unique<HeartbeatClient>(std::move(routers), v1::KvFingerprint(), [this] {
      v1::WorkerStatus status;
      status.mutable_pool()->set_limit_blocks(blocks_);
      return status;
    });
  }

  std::atomic<int32_t> blocks_ = 1;
};

TEST_F(HeartbeatClientTellNow, EveryRouterHasTheNewStatusWhenItReturns) {
  FakeRouter a;
  FakeRouter b;
  const auto client = Client({a.address(), b.address()});
  EXPECT_EQ(client->routers(), 2);
  for (int32_t blocks = 2; blocks < 20; ++blocks) {
    blocks_ = blocks;
    EXPECT_EQ(client->TellNow(kPatientMs), 2);
    EXPECT_EQ(NewestLimit(a), blocks);
    EXPECT_EQ(NewestLimit(b), blocks);
  }
}

TEST_F(HeartbeatClientTellNow, DoesNotCountARouterThatDoesNotAnswer) {
  FakeRouter router;
  const auto client = Client({router.address(), "127.0.0.1:1"});
  EXPECT_EQ(client->TellNow(1000), 1);
}

TEST_F(HeartbeatClientTellNow, WaitsForNothingWithoutRouters) {
  EXPECT_EQ(Client({})->TellNow(kPatientMs), 0);
}

TEST_F(HeartbeatClientTellNow, StopsWaitingWhenTheWorkerLeaves) {
  const auto client = Client({"127.0.0.1:1"});
  std::thread leaver([&] { client->Leave(); });
  EXPECT_EQ(client->TellNow(kPatientMs), 0);
  leaver.join();
}

}  // namespace
}  // namespace baton
