#include "worker_rpc/router_resolver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace baton {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;

using Addresses = std::vector<std::string>;

// A name server whose answers a test changes, and the addresses that the resolver reported.
class FakeNames {
 public:
  void Set(absl::StatusOr<Addresses> hosts) {
    std::lock_guard lock(mutex_);
    hosts_ = std::move(hosts);
  }
  RouterResolver::Resolve Resolve() {
    return [this](const std::string&) {
      std::lock_guard lock(mutex_);
      ++asked_;
      changed_.notify_all();
      return hosts_;
    };
  }
  RouterResolver::Found Found() {
    return [this](const Addresses& routers) {
      std::lock_guard lock(mutex_);
      found_ = routers;
      changed_.notify_all();
    };
  }
  // Waits until the resolver has reported `routers`, or for 20 s. Returns its latest report.
  Addresses Await(const Addresses& routers) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(20), [&] { return found_ == routers; });
    return found_;
  }
  // Waits until the name was looked up `more` times more, or for 20 s.
  void AwaitLookUps(int more) {
    std::unique_lock lock(mutex_);
    const int wanted = asked_ + more;
    changed_.wait_for(lock, std::chrono::seconds(20), [&] { return asked_ >= wanted; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  absl::StatusOr<Addresses> hosts_ = absl::UnavailableError("no such name");
  Addresses found_;
  int asked_ = 0;
};

RouterAddresses Named() { return RouterAddresses({*ParseRouterTarget("dns:///routers:80")}); }

TEST(RouterResolver, ReportsTheAddressesAgainWhenTheyChange) {
  FakeNames names;
  RouterResolver resolver(Named(), names.Found(), names.Resolve(), /*interval_ms=*/1);
  names.Set(Addresses{"10.0.0.1"});
  EXPECT_THAT(names.Await({"10.0.0.1:80"}), ElementsAre("10.0.0.1:80"));
  names.Set(Addresses{"10.0.0.1", "10.0.0.2"});
  EXPECT_THAT(names.Await({"10.0.0.1:80", "10.0.0.2:80"}),
              ElementsAre("10.0.0.1:80", "10.0.0.2:80"));
  names.Set(absl::UnavailableError("no name server"));
  names.AwaitLookUps(3);
  EXPECT_THAT(names.Await({"10.0.0.1:80", "10.0.0.2:80"}),
              ElementsAre("10.0.0.1:80", "10.0.0.2:80"))
      << "a failing name server takes no router away";
  names.Set(Addresses{"10.0.0.3"});
  EXPECT_THAT(names.Await({"10.0.0.3:80"}), ElementsAre("10.0.0.3:80"));
}

TEST(RouterResolver, StopWaitsForNoLookUpAndItsAnswerIsNotReported) {
  FakeNames names;
  std::promise<void> asked;
  std::promise<void> answer;
  bool first = true;
  {
    RouterResolver resolver(
        Named(), names.Found(),
        [&](const std::string&) -> absl::StatusOr<Addresses> {
          if (std::exchange(first, false)) asked.set_value();
          answer.get_future().wait();
          return Addresses{"10.0.0.1"};
        },
        /*interval_ms=*/1);
    asked.get_future().wait();
    resolver.Stop();  // during the look-up
    answer.set_value();
  }
  EXPECT_THAT(names.Await({}), ElementsAre());
}

TEST(ResolveHost, FindsTheAddressesOfThisMachinesOwnName) {
  const auto found = ResolveHost("localhost");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_THAT(*found, Contains("127.0.0.1"));
}

TEST(ResolveHost, AnUnknownNameIsAnErrorThatNamesIt) {
  const absl::Status status = ResolveHost("no-such-name.invalid").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("no-such-name.invalid"));
}

}  // namespace
}  // namespace baton
