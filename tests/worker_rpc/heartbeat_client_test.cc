#include "worker_rpc/heartbeat_client.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/worker_rpc/fake_router.h"

namespace baton {
namespace {

v1::KvFingerprint Fingerprint() {
  v1::KvFingerprint fingerprint;
  fingerprint.set_model("m");
  return fingerprint;
}

// Each status has the number of those before it as its epoch.
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
    EXPECT_EQ(heard[i].status().epoch(), i + 1) << "asked anew for each";
    EXPECT_EQ(heard[i].fingerprint().model(), "m");
    EXPECT_FALSE(heard[i].leaving());
  }
}

TEST(HeartbeatClient, ARefusedWorkerGoesOnBeating) {
  FakeRouter router("another model");
  Statuses statuses;
  HeartbeatClient client({router.address()}, Fingerprint(), statuses.Next());
  EXPECT_GE(router.Heard(2).size(), 2u);
}

TEST(HeartbeatClient, LeavingSaysGoodbyeOnceToEveryRouter) {
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
  EXPECT_EQ(first.Heard(0).size(), count) << "nothing behind the goodbye";
}

TEST(HeartbeatClient, TheDestructorSaysGoodbyeToo) {
  FakeRouter router;
  Statuses statuses;
  { HeartbeatClient client({router.address()}, Fingerprint(), statuses.Next()); }
  const std::vector<v1::HeartbeatRequest> heard = router.Heard(1);
  ASSERT_FALSE(heard.empty());
  EXPECT_TRUE(heard.back().leaving());
}

TEST(HeartbeatClient, ARouterThatIsNotThereDelaysNoOther) {
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

TEST(HeartbeatClient, ARouterThatComesBackAtItsAddressLearnsOfTheWorker) {
  Statuses statuses;
  auto router = std::make_unique<FakeRouter>();
  const std::string address = router->address();
  HeartbeatClient client({address}, Fingerprint(), statuses.Next());
  ASSERT_FALSE(router->Heard(1).empty());
  router.reset();
  router = std::make_unique<FakeRouter>("", address);
  EXPECT_FALSE(router->Heard(1).empty());
}

}  // namespace
}  // namespace baton
