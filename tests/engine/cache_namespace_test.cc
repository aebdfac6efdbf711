// Namespaces stay separate even if hashes collide. With run hashes of 8 bits the index names
// workers that hold another namespace's prefix. Following such a hint to the worker's cache must
// bring nothing.
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "cache/cache_key.h"
#include "cache/index/global_index.h"
#include "kvtransfer/loopback/loopback_transport.h"
#include "tests/engine/worker_bench.h"

namespace baton {
namespace {

constexpr IndexedWorker kSource{1};
constexpr CacheNamespace kTheirs{7, 1}, kMine{7, 2};

std::vector<Hash128> EightBits(std::vector<Hash128> hashes) {
  for (Hash128& hash : hashes) hash = {.low = hash.low & 0xFF, .high = 0};
  return hashes;
}

std::vector<Hash128> HashesOf(CacheNamespace space, const std::vector<TokenId>& tokens) {
  return EightBits(ChainedHashes(space, UnitsFromTokens(tokens)));
}

std::shared_ptr<SinkRecord> Say(WorkerBench& bench, CacheNamespace space,
                                const std::vector<TokenId>& prompt) {
  GenerateRequest request = WorkerBench::Request(prompt, 4);
  request.cache_namespace = space;
  const auto record = bench.Generate(std::move(request));
  bench.Run();
  return record;
}

class NamespacePair : public ::testing::Test {
 protected:
  // Does what a router does that trusts the index, for a request of kMine.
  void FollowTheHint(const std::vector<TokenId>& prefix) {
    auto pull = std::make_shared<PullRecord>();
    receiver_.core->PullPrefix(++receiver_.last_handle,
                               {.tokens = prefix, .cache_namespace = kMine, .timeout_ms = 1000},
                               std::make_shared<RecordingPullSink>(pull));
    ASSERT_TRUE(pull->ticket.has_value());
    const absl::StatusOr<int32_t> sent = source_.core->SendPrefix(
        ++source_.last_handle,
        {.tokens = prefix, .cache_namespace = kMine, .ticket = *pull->ticket});
    EXPECT_EQ(sent.status().code(), absl::StatusCode::kNotFound);
    receiver_.core->Cancel(receiver_.last_handle);
    RunBoth(source_, receiver_);
    for (WorkerBench* bench : {&source_, &receiver_}) {
      std::vector<TokenId> prompt = prefix;
      prompt.push_back(1);
      const auto answer = Say(*bench, kMine, prompt);
      ASSERT_TRUE(answer->finish.has_value());
      EXPECT_EQ(answer->finish->ledger.cached_tokens, 0);
      EXPECT_EQ(answer->tokens, bench->runner.Continuation(prompt, 4));
    }
    source_.ExpectAllBlocksHome();
    receiver_.ExpectAllBlocksHome();
  }

  const std::vector<TokenId> theirs_ = Bytes("what the other tenant has asked.");  // 32
  const std::shared_ptr<LoopbackNetwork> network_ = CreateLoopbackNetwork();
  WorkerBench source_{{}, network_, "source"};
  WorkerBench receiver_{{}, network_, "receiver"};
};

TEST_F(NamespacePair, AFalseHintOfAnotherPromptPullsNothing) {
  ASSERT_TRUE(Say(source_, kTheirs, theirs_)->finish.has_value());
  GlobalIndex index({.max_blocks = 1024, .expected_blocks = 0, .key_seeds = {}});
  index.Stored(kSource, CacheTier::kDevice, std::nullopt, HashesOf(kTheirs, theirs_));
  // Tries prompts until one collides with their first run; one in 256 does.
  std::vector<TokenId> mine(16, 'm');
  int tries = 0;
  while (index.MatchWorkers(HashesOf(kMine, mine)).empty()) {
    ASSERT_LT(++tries, 100'000);
    mine[0] = tries % 200;
    mine[1] = tries / 200;
  }
  EXPECT_NE(mine, std::vector<TokenId>(theirs_.begin(), theirs_.begin() + 16));
  FollowTheHint(mine);
}

TEST_F(NamespacePair, TheSamePromptInAnotherNamespaceIsAnotherPrompt) {
  ASSERT_TRUE(Say(source_, kTheirs, theirs_)->finish.has_value());
  EXPECT_GE(source_.cache.PeekMatch(kTheirs, UnitsFromTokens(theirs_)), 28);
  FollowTheHint(theirs_);
}

}  // namespace
}  // namespace baton
