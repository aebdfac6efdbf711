// Two workers with both roles and full pools, which prefill for each other. Neither has room for
// the prompt that the other waits for.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/worker_core.h"
#include "kvtransfer/loopback/loopback_transport.h"
#include "tests/engine/chunk_pair.h"
#include "tests/engine/chunked_prompt.h"
#include "tests/engine/worker_bench.h"

namespace baton {
namespace {

constexpr int32_t kAnswerTokens = 4;

struct CrossedRequest {
  std::vector<TokenId> prompt;
  std::shared_ptr<SinkRecord> record;
  std::shared_ptr<PrefillRecord> prefill;
};

CrossedRequest Open(WorkerBench& decodes, const std::string& prompt) {
  CrossedRequest request{.prompt = Bytes(prompt), .record = nullptr, .prefill = nullptr};
  request.record = decodes.GenerateRemote(request.prompt, kAnswerTokens);
  EXPECT_TRUE(request.record->ticket.has_value()) << prompt;
  return request;
}

// Opens a request at each worker, then sends each ticket to the other worker.
std::pair<CrossedRequest, CrossedRequest> Cross(WorkerBench& one, const std::string& here,
                                                WorkerBench& other, const std::string& there) {
  std::pair requests(Open(one, here), Open(other, there));
  requests.first.prefill = other.Prefill(requests.first.prompt, *requests.first.record->ticket);
  requests.second.prefill = one.Prefill(requests.second.prompt, *requests.second.record->ticket);
  return requests;
}

void ExpectAnswered(const CrossedRequest& request, const WorkerBench& bench) {
  ASSERT_TRUE(request.record->finish.has_value());
  EXPECT_EQ(request.record->tokens, bench.runner.Continuation(request.prompt, kAnswerTokens));
}

// Of 8 blocks, a hand-off takes 5. So 3 are left, too few for a prefill of another prompt.
constexpr BenchOptions kFull = {.num_blocks = 8};

TEST(WorkerCoreBoth, TwoFullWorkersDoNotWaitForEachOther) {
  for (const int32_t steps_in_flight : {1, 2}) {
    SCOPED_TRACE(steps_in_flight);
    BenchOptions options = kFull;
    options.asynchronous = steps_in_flight > 1;
    options.steps_in_flight = steps_in_flight;
    const auto network = CreateLoopbackNetwork();
    WorkerBench one(options, network, "one");
    WorkerBench other(options, network, "other");
    const auto [here, there] = Cross(one, "the first prompt ...", other, "the second one .....");
    RunBoth(one, other);
    ExpectAnswered(here, one);
    ExpectAnswered(there, other);
    EXPECT_GT(one.core->counters().prefill_tokens + other.core->counters().prefill_tokens, 0);
    one.ExpectAllBlocksHome();
    other.ExpectAllBlocksHome();
  }
}

TEST(WorkerCoreBoth, AWorkerThatMayComputeForItsPeerTakesNoPromptOver) {
  const auto network = CreateLoopbackNetwork();
  WorkerBench one(kFull, network, "one");
  WorkerBench other({.num_blocks = 64}, network, "other");
  // The second prompt has 2 blocks, for which `one` has room.
  const auto [here, there] = Cross(one, "the first prompt ...", other, "2nd one");
  RunBoth(one, other);
  ExpectAnswered(here, one);
  ExpectAnswered(there, other);
  EXPECT_EQ(one.core->counters().prefill_tokens, 7) << "only the peer's prompt";
  EXPECT_EQ(other.core->counters().prefill_tokens, 20);
}

TEST(WorkerCoreBoth, AWorkerWithoutPeersPromptsWaitsForItsOwn) {
  const auto network = CreateLoopbackNetwork();
  WorkerBench one(kFull, network, "one");
  WorkerBench other({.num_blocks = 64}, network, "other");
  const auto prompt = Bytes("the first prompt ...");
  const auto record = one.GenerateRemote(prompt, kAnswerTokens);
  const auto queued = one.Generate(Bytes("a prompt without room"), kAnswerTokens);
  one.Run();
  EXPECT_EQ(one.core->counters().prefill_tokens, 0);
  other.Prefill(prompt, *record->ticket);
  RunBoth(one, other);
  EXPECT_TRUE(queued->finish.has_value());
  EXPECT_EQ(record->tokens, one.runner.Continuation(prompt, kAnswerTokens));
  EXPECT_EQ(one.core->counters().prefill_tokens, 21);
}

TEST(WorkerCoreBoth, AWorkerThatOnlyDecodesStillTakesPromptsOver) {
  const auto network = CreateLoopbackNetwork();
  WorkerBench one({.num_blocks = 40}, network, "one");
  WorkerBench other({.num_blocks = 25}, network, "other");
  const auto running = one.Generate(Bytes("abc"), 60);
  one.Turn();
  // 20 blocks each. Both workers have room for a hand-off, but not for a prefill besides.
  const auto [here, there] = Cross(one, std::string(80, 'x'), other, std::string(80, 'y'));
  for (int i = 0; i < 50 && !here.record->finish.has_value(); ++i) {
    one.Turn();
    other.Turn();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the transport has a thread
  }
  EXPECT_TRUE(here.record->finish.has_value()) << "it need not wait for the long answer";
  EXPECT_FALSE(running->finish.has_value());
  RunBoth(one, other);
  EXPECT_TRUE(running->finish.has_value());
  ExpectAnswered(here, one);
  ExpectAnswered(there, other);
  one.ExpectAllBlocksHome();
  other.ExpectAllBlocksHome();
}

// Each worker waits for the same chunk from the other, and would send it once it has arrived.
TEST(WorkerCoreBoth, TwoWorkersDoNotWaitForTheSameChunkFromEachOther) {
  ChunkPair pair;
  const ChunkedPrompt prompt = PromptOf("Be brief.", {"a chunk for both"}, "Who?");
  PairedRequest here = pair.Open(ChunkedRequest(prompt, kAnswerTokens));
  GenerateRequest crossed = ChunkedRequest(prompt, kAnswerTokens);
  crossed.remote_prefill = true;
  const auto there = pair.prefills.Generate(crossed);
  ASSERT_TRUE(there->ticket.has_value());
  PrefillRequest prefill;
  prefill.prompt = crossed.prompt;
  prefill.chunked = crossed.chunked;
  prefill.sampling = crossed.sampling;
  prefill.cache_namespace = crossed.cache_namespace;
  prefill.ticket = *there->ticket;
  pair.decodes.core->AddPrefill(
      ++pair.decodes.last_handle, std::move(prefill),
      std::make_shared<RecordingPrefillSink>(std::make_shared<PrefillRecord>()));
  pair.Prefill(here);
  pair.Run();
  const auto expected = ChunkedContinuation(pair.decodes.runner, prompt, kAnswerTokens);
  ASSERT_TRUE(here.record->finish.has_value());
  ASSERT_TRUE(there->finish.has_value());
  EXPECT_EQ(here.record->tokens, expected);
  EXPECT_EQ(there->tokens, expected);
  pair.ExpectAllBlocksHome();
}

}  // namespace
}  // namespace baton
