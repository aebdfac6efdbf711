#include "router/tenant_gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "common/error_details.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kGateSecondUs = 1'000'000;

class TenantGateTest : public ::testing::Test {
 protected:
  void SetTable(const std::string& lines) {
    absl::StatusOr<TenantTable> table = TenantTable::Parse(lines);
    ASSERT_TRUE(table.ok()) << table.status();
    gate_.SetTable(*std::move(table));
  }
  std::unique_ptr<TenantVisit> Enter(const std::string& tenant, int32_t priority = 0) {
    absl::StatusOr<std::unique_ptr<TenantVisit>> visit = gate_.Enter(tenant, priority);
    EXPECT_TRUE(visit.ok()) << visit.status();
    return visit.ok() ? *std::move(visit) : nullptr;
  }
  void ExpectRefused(const absl::Status& status, const std::string& limit, int64_t wait_ms) {
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_TRUE(IsTenantLimit(status));
    EXPECT_EQ(RetryAfterMs(status), wait_ms);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(limit), HasSubstr(std::to_string(wait_ms) + " ms")));
  }
  // Enters, reserves, and waits for its turn, which is written to order_.
  std::unique_ptr<TenantVisit> Wait(const std::string& tenant, int64_t tokens,
                                    const std::string& name, int32_t priority = 0) {
    std::unique_ptr<TenantVisit> visit = Enter(tenant, priority);
    EXPECT_TRUE(visit->Reserve(tokens).ok());
    if (visit->AwaitTurn([this, name] { order_.push_back(name); })) order_.push_back(name);
    return visit;
  }
  TenantUse UseOf(const std::string& tenant) {
    for (const TenantUse& use : gate_.Uses(1000)) {
      if (use.tenant == tenant) return use;
    }
    return {};
  }

  ManualClock clock_;
  TenantGate gate_{&clock_, /*routers=*/1};
  std::vector<std::string> order_;
};

TEST_F(TenantGateTest, WithoutLimitsEverythingStartsAtOnce) {
  std::vector<std::unique_ptr<TenantVisit>> visits;
  for (int i = 0; i < 100; ++i) visits.push_back(Wait("a", 1'000'000, "x", 100));
  EXPECT_EQ(order_.size(), 100u);
  EXPECT_EQ(visits[0]->priority(), 100);
}

TEST_F(TenantGateTest, RequestsAboveTheRateAreRefusedUntilTheToldTime) {
  SetTable(R"({"tenant": "a", "requests_per_minute": 2})");
  Enter("a");
  Enter("a");
  ExpectRefused(gate_.Enter("a", 0).status(), "requests_per_minute of 2", 30'000);
  Enter("b");
  clock_.AdvanceUs(30 * kGateSecondUs);
  Enter("a");
  EXPECT_EQ(UseOf("a").requests, 4);
  EXPECT_EQ(UseOf("a").refused, 1);
  EXPECT_EQ(UseOf("a").running, 0);
}

TEST_F(TenantGateTest, RequestsAboveTheirNumberAreRefusedUntilOneEnds) {
  SetTable(R"({"tenant": "*", "concurrent_requests": 2})");
  const auto first = Enter("a");
  auto second = Enter("a");
  const absl::Status status = gate_.Enter("a", 0).status();
  EXPECT_TRUE(IsTenantLimit(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("concurrent_requests of 2"));
  Enter("b");
  second.reset();
  Enter("a");
}

TEST_F(TenantGateTest, TokensAreReservedAndSettledByUse) {
  SetTable(R"({"tenant": "a", "tokens_per_minute": 600})");
  const auto first = Enter("a");
  ASSERT_TRUE(first->Reserve(500).ok());
  const auto second = Enter("a");
  ExpectRefused(second->Reserve(200), "tokens_per_minute of 600", 10'000);
  first->End(50);
  EXPECT_EQ(UseOf("a").tokens, 50);
  const auto third = Enter("a");
  EXPECT_TRUE(third->Reserve(550).ok()) << "450 tokens came back";
  const auto fourth = Enter("a");
  ExpectRefused(fourth->Reserve(1), "tokens_per_minute of 600", 100);
}

TEST_F(TenantGateTest, ARequestWhoseTokensAreRefusedDoesNotCount) {
  SetTable(R"({"tenant": "a", "requests_per_minute": 2, "tokens_per_minute": 100})");
  const std::unique_ptr<TenantVisit> first = Enter("a");
  EXPECT_TRUE(first->Reserve(100).ok());
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(Enter("a")->Reserve(50).ok());
  EXPECT_TRUE(Enter("a")->Reserve(0).ok()) << "the second request";
  ExpectRefused(gate_.Enter("a", 0).status(), "requests_per_minute of 2", 30'000);
}

TEST_F(TenantGateTest, AListEntersWholeOrNotAtAll) {
  SetTable(R"({"tenant": "a", "requests_per_minute": 4, "concurrent_requests": 3})");
  const absl::Status never = gate_.EnterAll("a", 0, 4).status();
  EXPECT_EQ(never.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(never.message(),
            "there are 4 prompts; tenant \"a\" may have 3 requests at once (concurrent_requests)");
  std::unique_ptr<TenantVisit> one = Enter("a");
  EXPECT_EQ(gate_.EnterAll("a", 0, 3).status().code(), absl::StatusCode::kResourceExhausted);
  one.reset();
  EXPECT_EQ(gate_.EnterAll("a", 0, 3)->size(), 3u) << "the refused lists took nothing";
  ExpectRefused(gate_.Enter("a", 0).status(), "requests_per_minute of 4", 15'000);
  EXPECT_EQ(UseOf("a").running, 0);
}

TEST_F(TenantGateTest, APriorityAboveTheGreatestIsLowered) {
  SetTable(R"({"tenant": "a", "max_priority": 2})");
  EXPECT_EQ(Enter("a", 50)->priority(), 2);
  EXPECT_EQ(Enter("a", -7)->priority(), -7);
  EXPECT_EQ(Enter("b", 50)->priority(), 50);
}

TEST_F(TenantGateTest, EachOfSeveralRoutersGrantsItsPart) {
  TenantGate gate(&clock_, /*routers=*/3);
  gate.SetTable(*TenantTable::Parse(R"({"tenant": "a", "requests_per_minute": 4})"));
  EXPECT_TRUE(gate.Enter("a", 0).ok());
  EXPECT_TRUE(gate.Enter("a", 0).ok());
  const absl::Status status = gate.Enter("a", 0).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("4, shared by 3 routers"));
}

TEST_F(TenantGateTest, NewLimitsCountFromTheNextRequestOn) {
  SetTable(R"({"tenant": "a", "concurrent_requests": 1})");
  const auto first = Enter("a");
  EXPECT_FALSE(gate_.Enter("a", 0).ok());
  SetTable(R"({"tenant": "a", "concurrent_requests": 2})");
  const auto second = Enter("a");
  SetTable(R"({"tenant": "a", "concurrent_requests": 1})");
  EXPECT_FALSE(gate_.Enter("a", 0).ok());
  EXPECT_EQ(UseOf("a").running, 2);
  EXPECT_EQ(UseOf("a").limits.concurrent_requests, 1);
}

TEST_F(TenantGateTest, RequestsBeyondTheWindowTakeTurnsByTenant) {
  gate_.SetWindow(1);
  std::vector<std::unique_ptr<TenantVisit>> flood;
  for (int i = 0; i < 4; ++i) flood.push_back(Wait("a", 100, "a" + std::to_string(i)));
  const auto b = Wait("b", 100, "b");
  EXPECT_THAT(order_, ElementsAre("a0"));
  EXPECT_EQ(UseOf("a").waiting, 3);
  flood[0]->FirstToken();
  flood[0]->FirstToken();
  EXPECT_THAT(order_, ElementsAre("a0", "b"));
  b->End(100);  // without a token
  EXPECT_THAT(order_, ElementsAre("a0", "b", "a1"));
  flood[2].reset();  // gives up
  flood[1]->FirstToken();
  EXPECT_THAT(order_, ElementsAre("a0", "b", "a1", "a3"));
  EXPECT_EQ(UseOf("a").waiting, 0);
}

TEST_F(TenantGateTest, AHigherPriorityStartsFirst) {
  gate_.SetWindow(1);
  const auto running = Wait("a", 1, "first");
  const auto low = Wait("a", 1, "low", 0);
  const auto high = Wait("b", 1000, "high", 1);
  running->FirstToken();
  high->FirstToken();
  EXPECT_THAT(order_, ElementsAre("first", "high", "low"));
}

TEST_F(TenantGateTest, AGrowingWindowStartsThoseThatWait) {
  gate_.SetWindow(1);
  const auto a = Wait("a", 1, "a"), b = Wait("a", 1, "b"), c = Wait("a", 1, "c");
  gate_.SetWindow(3);
  EXPECT_THAT(order_, ElementsAre("a", "b", "c"));
}

TEST_F(TenantGateTest, TheWindowIsSharedByTheRouters) {
  TenantGate gate(&clock_, /*routers=*/2);
  gate.SetWindow(3);
  int started = 0;
  std::vector<std::unique_ptr<TenantVisit>> visits;
  for (int i = 0; i < 5; ++i) {
    visits.push_back(*gate.Enter("a", 0));
    if (visits.back()->AwaitTurn([&started] { ++started; })) ++started;
  }
  EXPECT_EQ(started, 2);
}

TEST_F(TenantGateTest, AVisitThatHasEndedNeverStarts) {
  gate_.SetWindow(1);
  const auto running = Wait("a", 1, "a");
  auto waiting = Wait("a", 1, "b");
  waiting->End(0);
  EXPECT_FALSE(waiting->AwaitTurn([] {}));
  running->FirstToken();
  EXPECT_THAT(order_, ElementsAre("a"));
}

TEST_F(TenantGateTest, NamesOfClientsTakeABoundedMemory) {
  for (size_t i = 0; i < TenantGate::kMaxTenants + 100; ++i) Enter("t" + std::to_string(i));
  Enter(std::string(1000, 'x'));
  EXPECT_LE(gate_.Uses(100'000).size(), TenantGate::kMaxTenants + 1);
  EXPECT_EQ(UseOf(TenantGate::kFurtherTenants).requests, 101);
  EXPECT_EQ(gate_.Uses(10).size(), 10u);
  clock_.AdvanceUs(1000 * kGateSecondUs);
  gate_.Tick();
  EXPECT_THAT(gate_.Uses(10), IsEmpty());
}

TEST_F(TenantGateTest, ThreadsLeaveNothingBehind) {
  SetTable(R"({"tenant": "a", "concurrent_requests": 5, "weight": 2})");
  gate_.SetWindow(2);
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::atomic<int> started = 0;
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(seed + t);
      for (int i = 0; i < 2000; ++i) {
        auto visit = gate_.Enter(random() % 2 == 0 ? "a" : "b", static_cast<int32_t>(random() % 2));
        if (!visit.ok()) continue;
        EXPECT_TRUE((*visit)->Reserve(static_cast<int64_t>(random() % 100)).ok());
        if ((*visit)->AwaitTurn([&started] { ++started; })) ++started;
        if (random() % 2 == 0) (*visit)->FirstToken();
        if (random() % 2 == 0) (*visit)->End(10);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(started, 0);
  for (const TenantUse& use : gate_.Uses(10)) {
    EXPECT_EQ(use.running, 0);
    EXPECT_EQ(use.waiting, 0);
  }
  const auto a = Wait("a", 1, "a"), b = Wait("a", 1, "b");
  EXPECT_EQ(order_.size(), 2u) << "all places of the window are free";
}

TEST_F(TenantGateTest, AVisitOfATenantWithAShareNamesTheOwnerOfItsCache) {
  SetTable(R"({"tenant": "a", "kv_share": 0.25})"
           "\n"
           R"({"tenant": "b", "kv_share": 0.5})");
  const auto first = Enter("a"), second = Enter("a"), other = Enter("b"), none = Enter("c");
  ASSERT_TRUE(first->cache_owner() && second->cache_owner() && other->cache_owner());
  EXPECT_EQ(first->cache_owner()->share, 0.25);
  EXPECT_EQ(*first->cache_owner(), *second->cache_owner());
  EXPECT_NE(first->cache_owner()->id, other->cache_owner()->id);
  EXPECT_EQ(none->cache_owner(), std::nullopt);
  EXPECT_EQ(UseOf("a").limits.kv_share, 0.25);
  SetTable(R"({"tenant": "a"})");
  EXPECT_EQ(Enter("a")->cache_owner(), std::nullopt);
}

TEST_F(TenantGateTest, AheadAreTheStartedRequestsAndThoseWithAnEarlierTurn) {
  gate_.SetWindow(2);
  std::vector<std::unique_ptr<TenantVisit>> visits;
  for (int i = 0; i < 30; ++i) visits.push_back(Wait("flood", 10, "f"));
  const auto next = Enter("flood"), later = Enter("flood");
  EXPECT_EQ(next->Ahead(), 31u) << "all of its tenant, and one that will wait soon";
  const auto other = Enter("light");
  EXPECT_LE(other->Ahead(), 3u);
  EXPECT_EQ(MostAhead(other.get()), other->Ahead());
  EXPECT_GT(MostAhead(nullptr), 1'000'000u);
  EXPECT_EQ(Enter("light", 1)->Ahead(), 3u) << "two have started, and one of its tenant waits soon";
  visits.clear();
  EXPECT_EQ(other->Ahead(), 0u);
}

}  // namespace
}  // namespace baton
