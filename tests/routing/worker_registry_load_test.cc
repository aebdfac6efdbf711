// What the registry knows of the load that other routers put on a worker.
#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <string>

#include "routing/worker_registry.h"
#include "tests/routing/registered_workers.h"

namespace baton {
namespace {

class WorkerRegistryLoadTest : public WorkerRegistryTest {
 protected:
  WorkerRegistryLoadTest() { Hear(std::nullopt, 0); }
  // A heartbeat with so many sequences and prompt tokens that are left to compute.
  void Hear(std::optional<int64_t> prompt_tokens_left, int32_t queued) {
    WorkerReport report = Report("a", 1);
    report.prompt_tokens_left = prompt_tokens_left;
    report.queued = queued;
    ASSERT_TRUE(registry_.Heartbeat(report).ok());
  }
  // This router sends a prompt.
  PrefillWork Send(int64_t tokens, int64_t us) {
    const PrefillWork work{.tokens = tokens, .us = us};
    registry_.AddActive(NumberOf("a"));
    registry_.AddPrefill(NumberOf("a"), work);
    return work;
  }
  const WorkerRecord& Worker() { return *registry_.Find(NumberOf("a")); }
  int64_t others_tokens() { return Worker().others_tokens; }
};

TEST_F(WorkerRegistryLoadTest, TokensOfOtherRoutersAreThoseThatThisOneDidNotSend) {
  EXPECT_EQ(others_tokens(), 0) << "an older worker";
  Hear(3000, 2);
  EXPECT_EQ(others_tokens(), 3000);
  const PrefillWork own = Send(1000, 100'000);
  EXPECT_EQ(others_tokens(), 3000) << "until the worker reports the prompt, too";
  Hear(4000, 3);
  EXPECT_EQ(others_tokens(), 3000) << "this router's own prompt counts once";
  registry_.RemovePrefill(NumberOf("a"), own);
  Hear(500, 2);
  EXPECT_EQ(others_tokens(), 500);
  Hear(0, 0);
  EXPECT_EQ(others_tokens(), 0);
}

TEST_F(WorkerRegistryLoadTest, OwnPromptsAreThoseOfTheHeartbeatAndThoseSentSince) {
  Hear(3000, 2);
  const PrefillWork own = Send(1000, 100'000);
  EXPECT_EQ(Worker().HeardAndSentUs(), 100'000) << "sent";
  clock_.AdvanceUs(30'000);
  EXPECT_EQ(Worker().HeardAndSentUs(), 100'000) << "perhaps the worker computed other prompts";
  Hear(3700, 3);
  EXPECT_EQ(Worker().HeardAndSentUs(), 70'000) << "heard";
  const PrefillWork next = Send(2000, 150'000);
  EXPECT_EQ(Worker().HeardAndSentUs(), 220'000) << "heard, and sent";
  registry_.RemovePrefill(NumberOf("a"), own);
  EXPECT_EQ(Worker().HeardAndSentUs(), 220'000) << "the heartbeat is too old to know that";
  registry_.RemovePrefill(NumberOf("a"), next);
  EXPECT_EQ(Worker().HeardAndSentUs(), 70'000) << "this one it has never known";
}

TEST_F(WorkerRegistryLoadTest, AWorkerWithLessThanThisRouterSentHasNothingOfOthers) {
  Send(1000, 100'000);
  Hear(400, 1);
  EXPECT_EQ(others_tokens(), 0);
  Hear(900, 1);
  EXPECT_EQ(others_tokens(), 0) << "all sequences are of this router";
}

TEST_F(WorkerRegistryLoadTest, WhatTheWorkerHasProbablyComputedOfThisRoutersPromptDoesNotCount) {
  Send(1000, 100'000);
  clock_.AdvanceUs(50'000);
  Hear(3500, 3);
  EXPECT_EQ(others_tokens(), 3000);
  clock_.AdvanceUs(500'000);
  Hear(3500, 3);
  EXPECT_EQ(others_tokens(), 3500) << "the prompt takes longer than expected";
}

TEST_F(WorkerRegistryLoadTest, AnotherRoutersTokensNeedItsSequences) {
  Send(1000, 100'000);
  Hear(std::numeric_limits<int32_t>::max(), 1);
  EXPECT_EQ(others_tokens(), 0) << "this router's estimate was too low, or the worker is hostile";
}

}  // namespace
}  // namespace baton
