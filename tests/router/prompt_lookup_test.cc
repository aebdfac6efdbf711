#include "router/prompt_lookup.h"

#include <gtest/gtest.h>

#include <span>
#include <string>
#include <vector>

#include "cache/index/kv_event.h"

namespace baton {
namespace {

constexpr CacheNamespace kSpace{1, 2};
constexpr WorkerNumber kA{1}, kB{2}, kC{3};

ChunkedPrompt Prompt() {
  ChunkedPrompt prompt;
  prompt.system.assign(40, 1);
  prompt.chunks = {std::vector<TokenId>(30, 2), std::vector<TokenId>(50, 3)};
  prompt.question.assign(70, 4);
  return prompt;
}

class PromptLookupTest : public testing::Test {
 protected:
  PromptLookupTest() {
    for (const WorkerNumber worker : {kA, kB, kC}) {
      index_.Add(worker, Epoch(1), 0);
      EXPECT_TRUE(index_.Take(worker, {.epoch = Epoch(1), .sequence = 0, .events = {}}).ok());
    }
  }
  // Reports hashes that a worker has stored, each chain as one event.
  void Store(WorkerNumber worker, const std::vector<std::vector<Hash128>>& chains) {
    std::vector<KvEvent> events;
    for (const std::vector<Hash128>& chain : chains) {
      events.push_back({.kind = KvEvent::Kind::kStored, .parent = {}, .hashes = chain});
    }
    Tell(worker, events);
  }
  void Tell(WorkerNumber worker, const std::vector<KvEvent>& events) {
    const uint64_t sequence = ++sequences_[worker];
    const std::string bytes = EncodeKvEvents(events);
    EXPECT_TRUE(
        index_.Take(worker, {.epoch = Epoch(1), .sequence = sequence, .events = bytes}).ok());
  }
  PromptLookup::Cached Cached() {
    return PromptLookup(index_, question_, &request_).Of(predicted_, now_us_);
  }
  const std::vector<ChunkedRequest::Part>& parts() const { return request_.parts(); }

  FleetIndex index_{FleetIndexOptions()};
  PredictedPrefixes predicted_{100, 1'000'000};
  int64_t now_us_ = 5;
  const ChunkedRequest request_{Prompt(), kSpace, 4096};
  const std::vector<Hash128> question_ =
      ChainedHashes(request_.derived_namespace(), UnitsFromTokens(Prompt().question));
  absl::flat_hash_map<WorkerNumber, uint64_t> sequences_;
};

TEST_F(PromptLookupTest, CountsWhatEachWorkerHasOfEveryPart) {
  EXPECT_TRUE(Cached().tokens.empty());
  Store(kA, {parts()[0].prefix, {parts()[1].key}, question_});
  Store(kB, {parts()[0].prefix, {parts()[0].key}, {parts()[2].key}});
  Store(kC, {{question_[0]}});
  const PromptLookup::Cached cached = Cached();
  EXPECT_EQ(cached.tokens.at(kA), 32 + 30 + 64)
      << "two units of the system part and four of the question";
  EXPECT_EQ(cached.tokens.at(kB), 40 + 50) << "the whole system part";
  EXPECT_EQ(cached.tokens.at(kC), 16);
  EXPECT_EQ(cached.held_prefix, 0u);
}

TEST_F(PromptLookupTest, ASleepingChunkCountsAsCachedButIsNotPulled) {
  Store(kA, {{parts()[1].key}});
  Tell(kB, {{.kind = KvEvent::Kind::kStored,
             .tier = CacheTier::kHost,
             .parent = {},
             .hashes = {parts()[2].key}}});
  EXPECT_EQ(Cached().tokens.at(kB), 50);
  const PromptLookup lookup(index_, question_, &request_);
  EXPECT_EQ(lookup.chunks()->TokensToPull(kB, kC), 0);
  EXPECT_EQ(lookup.chunks()->TokensToPull(kA, kC), 30);
  // It wakes: first it is in both tiers, then only in the pool.
  Store(kB, {{parts()[2].key}});
  Tell(kB, {{.kind = KvEvent::Kind::kRemoved,
             .tier = CacheTier::kHost,
             .parent = {},
             .hashes = {parts()[2].key}}});
  EXPECT_EQ(Cached().tokens.at(kB), 50);
  EXPECT_EQ(PromptLookup(index_, question_, &request_).chunks()->TokensToPull(kB, kC), 50);
}

TEST_F(PromptLookupTest, SaysWhichChunksAWorkerCouldPull) {
  Store(kA, {parts()[0].prefix, {parts()[1].key}, {parts()[2].key}});
  Store(kB, {{parts()[1].key}});
  const PromptLookup lookup(index_, question_, &request_);
  EXPECT_EQ(lookup.chunks()->ChunksToPull(kA, kB), std::vector<int32_t>{1});
  EXPECT_EQ(lookup.chunks()->TokensToPull(kA, kC), 30 + 50) << "without the system part";
  EXPECT_EQ(PromptLookup(index_, question_, nullptr).chunks(), nullptr);
}

TEST_F(PromptLookupTest, ARemovedChunkCountsNoMore) {
  Store(kA, {{parts()[1].key}, {parts()[2].key}});
  Tell(kA, {{.kind = KvEvent::Kind::kRemoved, .parent = {}, .hashes = {parts()[1].key}}});
  EXPECT_EQ(Cached().tokens.at(kA), 50);
  Tell(kA, {{.kind = KvEvent::Kind::kCleared, .parent = {}, .hashes = {}}});
  EXPECT_TRUE(Cached().tokens.empty());
}

TEST_F(PromptLookupTest, ASleepingChunkCounts) {
  Tell(kA, {{.kind = KvEvent::Kind::kStored,
             .tier = CacheTier::kHost,
             .parent = {},
             .hashes = {parts()[1].key}}});
  EXPECT_EQ(Cached().tokens.at(kA), 30);
}

TEST_F(PromptLookupTest, APredictedAnswerCountsBehindTheParts) {
  Store(kA, {{parts()[1].key}});
  predicted_.Add(kA, question_, now_us_);
  EXPECT_EQ(Cached().tokens.at(kA), 30 + 64);
}

TEST_F(PromptLookupTest, AnotherNamespaceFindsNothing) {
  Store(kA, {parts()[0].prefix, {parts()[0].key}, {parts()[1].key}, {parts()[2].key}, question_});
  const ChunkedRequest other(Prompt(), CacheNamespace(3, 4), 4096);
  const std::vector<Hash128> question =
      ChainedHashes(other.derived_namespace(), UnitsFromTokens(Prompt().question));
  EXPECT_TRUE(PromptLookup(index_, question, &other).Of(predicted_, now_us_).tokens.empty());
}

TEST_F(PromptLookupTest, AnOrdinaryPromptHasTheLongestPrefixThatAWorkerHolds) {
  Store(kA, {{question_[0], question_[1]}});
  Store(kB, {{question_[0]}});
  const PromptLookup::Cached cached =
      PromptLookup(index_, question_, nullptr).Of(predicted_, now_us_);
  EXPECT_EQ(cached.tokens.at(kA), 32);
  EXPECT_EQ(cached.tokens.at(kB), 16);
  EXPECT_EQ(cached.held_prefix, question_[1].low);
}

TEST_F(PromptLookupTest, WithLimitsItAsksAboutTheDeepestHoldersAndTheNamedWorkers) {
  Store(kA, {parts()[0].prefix, question_});
  Store(kB, {{question_[0], question_[1]}});
  Store(kC, {{question_[0]}, {parts()[0].key}});
  const auto cached = [this](size_t most, const std::vector<WorkerNumber>& also) {
    const LookupLimits limits{.most = most, .turn = 1, .also = also};
    return PromptLookup(index_, question_, &request_, &limits).Of(predicted_, now_us_).tokens;
  };
  EXPECT_EQ(cached(100, {}), Cached().tokens) << "more than all workers";
  const auto deepest = cached(1, {});
  EXPECT_EQ(deepest.at(kA), 32 + 64);
  EXPECT_EQ(deepest.at(kC), 40) << "of the system part, it has most";
  EXPECT_FALSE(deepest.contains(kB));
  EXPECT_EQ(cached(1, {kB}).at(kB), 32);
  EXPECT_EQ(cached(0, {kC}).at(kC), 16 + 40);
}

}  // namespace
}  // namespace baton
