// The routes of prompts in parts.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/error_details.h"
#include "router/chunked_request.h"
#include "tests/router/router_core_fixture.h"
#include "tests/router/worker_reports.h"

namespace baton {
namespace {

class RouterCoreChunks : public RouterCoreTest {
 protected:
  static constexpr int64_t kWindowUs = RouterCore::kRegistrationUs;
};

WorkerReport KnowsChunks(const std::string& id, const PromptChunkSupport& support = {}) {
  WorkerReport report = Report(id);
  report.chunks = std::make_shared<const PromptChunkSupport>(support);
  return report;
}

// A system part, three chunks, one of them twice, and a question.
struct KnownChunkedPrompt {
  static ChunkedPrompt Parts() {
    ChunkedPrompt prompt;
    prompt.system.assign(64, 1);
    prompt.chunks = {std::vector<TokenId>(500, 2), std::vector<TokenId>(500, 3),
                     std::vector<TokenId>(500, 2)};
    prompt.question.assign(32, 4);
    return prompt;
  }
  ChunkedRequest request{Parts(), CacheNamespace(1), 4096};
  std::vector<Hash128> hashes =
      ChainedHashes(request.derived_namespace(), UnitsFromTokens(request.prompt().question));
  RouteQuestion question{.prompt_hashes = hashes,
                         .prompt_tokens = 64 + 3 * 500 + 32,
                         .sequence_tokens = 64 + 3 * 500 + 32 + 100,
                         .excluded = {},
                         .chunked = &request};
};

TEST_F(RouterCoreChunks, AChunkedPromptGoesOnlyToAWorkerThatTakesIt) {
  const KnownChunkedPrompt prompt;
  for (const char* id : {"a", "b"}) ASSERT_TRUE(core_.Heartbeat(Report(id)).ok());
  clock_.AdvanceUs(kWindowUs);
  EXPECT_EQ(core_.ChooseRoute(prompt.question).status().code(),
            absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(core_.Heartbeat(KnowsChunks("c")).ok());
  for (int i = 0; i < 6; ++i) {
    const absl::StatusOr<Route> route = core_.ChooseRoute(prompt.question);
    ASSERT_TRUE(route.ok()) << route.status();
    EXPECT_EQ(route->decode_id, "c");
  }
  RouteQuestion refused = prompt.question;
  refused.excluded = {Number(2)};
  EXPECT_EQ(core_.ChooseRoute(refused).status().code(), absl::StatusCode::kUnavailable)
      << "the worker that takes it has refused this request";
}

TEST_F(RouterCoreChunks, ForAWhileAfterTheFirstWorkerARefusalSaysTryAgain) {
  const KnownChunkedPrompt prompt;
  clock_.AdvanceUs(5 * kWindowUs);  // without a worker
  WorkerReport wrong = Report("z");
  wrong.epoch = Epoch(0);
  EXPECT_FALSE(core_.Heartbeat(wrong).ok());
  clock_.AdvanceUs(kWindowUs);
  ASSERT_TRUE(core_.Heartbeat(Report("a")).ok());
  clock_.AdvanceUs(kWindowUs - 2000);
  ASSERT_TRUE(core_.Heartbeat(Report("b")).ok());  // does not begin it anew
  const absl::Status early = core_.ChooseRoute(prompt.question).status();
  EXPECT_EQ(early.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(RetryAfterMs(early), 2);
  EXPECT_EQ(std::string(early.message()).find("try again in 2 ms"), 0u) << early;
  EXPECT_NE(std::string(early.message()).find("no worker of this fleet supports"),
            std::string::npos);
  clock_.AdvanceUs(2000);
  EXPECT_EQ(core_.ChooseRoute(prompt.question).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(RouterCoreChunks, AfterAllWorkersLeftTheNextIsTheFirst) {
  const KnownChunkedPrompt prompt;
  const WorkerReport report = Report("a");
  ASSERT_TRUE(core_.Heartbeat(report).ok());
  clock_.AdvanceUs(kWindowUs);
  EXPECT_EQ(core_.ChooseRoute(prompt.question).status().code(),
            absl::StatusCode::kFailedPrecondition);
  core_.Leave(report.id, report.epoch);
  ASSERT_TRUE(core_.Workers().empty());
  ASSERT_TRUE(core_.Heartbeat(Report("b")).ok());
  EXPECT_EQ(core_.ChooseRoute(prompt.question).status().code(), absl::StatusCode::kUnavailable);
  ASSERT_TRUE(core_.Heartbeat(KnowsChunks("c")).ok());
  EXPECT_TRUE(core_.ChooseRoute(prompt.question).ok()) << "a worker takes it, so nothing waits";
}

TEST_F(RouterCoreChunks, AChunkedPromptGoesToTheWorkerThatHasItsChunks) {
  const KnownChunkedPrompt prompt;
  for (const char* id : {"a", "b", "c"}) ASSERT_TRUE(core_.Heartbeat(KnowsChunks(id)).ok());
  core_.Tick();
  Tell(core_, Number(1), {prompt.request.parts()[2].key});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(DecodeWorkerOf(core_, prompt.question), "b");
  const absl::StatusOr<Route> route = core_.ChooseRoute(prompt.question);
  EXPECT_EQ(route->plan.work.tokens, 64 + 500 + 32) << "the repeated chunk is computed once";
  EXPECT_EQ(route->plan.prefill, std::nullopt);
}

TEST_F(RouterCoreChunks, ThePositionsAndBlocksOfAChunkedPromptBoundItsAnswer) {
  const KnownChunkedPrompt prompt;
  WorkerReport report = KnowsChunks("a");
  report.context_length = 600;  // the answer begins at 64 + 500 + 32
  ASSERT_TRUE(core_.Heartbeat(report).ok());
  EXPECT_EQ(core_.ChooseRoute(prompt.question)->room, prompt.question.prompt_tokens + 4);
  report.context_length = 0;
  report.pool_tokens = 64 + 2 * 512 + 48;  // blocks of 16
  ASSERT_TRUE(core_.Heartbeat(report).ok());
  EXPECT_EQ(core_.ChooseRoute(prompt.question)->room, prompt.question.prompt_tokens + 16 + 1);
}

TEST_F(RouterCoreChunks, ThePiecesHaveTheSizeOfMostWorkers) {
  EXPECT_EQ(core_.PieceTokens(), 4096);
  ASSERT_TRUE(core_.Heartbeat(Report("a")).ok());
  ASSERT_TRUE(core_.Heartbeat(KnowsChunks("b", {.piece_tokens = 512})).ok());
  EXPECT_EQ(core_.PieceTokens(), 512);
}

}  // namespace
}  // namespace baton
