#include "loadtest/workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "loadtest/mooncake_trace.h"
#include "loadtest/seeded_random.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<Workload> Make(const WorkloadOptions& options,
                               std::vector<TracedRequest> trace = {}) {
  auto workload = MakeWorkload(options, std::move(trace));
  EXPECT_TRUE(workload.ok()) << workload.status();
  return *std::move(workload);
}

std::vector<LoadRequest> Take(Workload& workload, size_t count) {
  std::vector<LoadRequest> out;
  for (size_t i = 0; i < count; ++i) {
    auto next = workload.Next();
    if (!next) break;
    out.push_back(*std::move(next));
  }
  return out;
}

size_t CommonPrefix(const LoadRequest& a, const LoadRequest& b) {
  const std::vector<TokenId> left = AllTokens(a);
  const std::vector<TokenId> right = AllTokens(b);
  size_t same = 0;
  while (same < std::min(left.size(), right.size()) && left[same] == right[same]) ++same;
  return same;
}

TEST(Workload, TheSameSeedGivesTheSameRequests) {
  for (const WorkloadKind kind :
       {WorkloadKind::kSynthetic, WorkloadKind::kSharedPrefix, WorkloadKind::kChat,
        WorkloadKind::kChunks, WorkloadKind::kSwing}) {
    const WorkloadOptions options = {.kind = kind, .seed = 4, .length_spread = 0.5};
    const auto first = Make(options);
    const auto second = Make(options);
    WorkloadOptions other_options = options;
    other_options.seed = 5;
    const auto other = Make(other_options);
    const auto a = Take(*first, 20);
    const auto b = Take(*second, 20);
    const auto c = Take(*other, 20);
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_EQ(AllTokens(a[i]), AllTokens(b[i]));
      EXPECT_EQ(a[i].output_tokens, b[i].output_tokens);
      EXPECT_NE(AllTokens(a[i]), AllTokens(c[i]));
    }
  }
}

TEST(Workload, PlannedLengthsAreThoseOfThePrompts) {
  for (const WorkloadKind kind : {WorkloadKind::kSynthetic, WorkloadKind::kSharedPrefix,
                                  WorkloadKind::kChat, WorkloadKind::kChunks}) {
    const auto workload = Make({.kind = kind, .seed = 1, .length_spread = 0.9});
    for (const LoadRequest& request : Take(*workload, 50)) {
      EXPECT_EQ(AllTokens(request).size(), static_cast<size_t>(request.prompt_tokens));
      EXPECT_GE(request.output_tokens, 1);
    }
  }
}

TEST(Workload, SyntheticPromptsShareNothing) {
  const auto workload = Make({.kind = WorkloadKind::kSynthetic, .seed = 1});
  const auto requests = Take(*workload, 30);
  for (size_t i = 1; i < requests.size(); ++i) {
    EXPECT_LT(CommonPrefix(requests[0], requests[i]), 3u);
  }
}

TEST(Workload, PrefixesAreShared) {
  const auto workload = Make({.kind = WorkloadKind::kSharedPrefix,
                              .seed = 1,
                              .prompt_tokens = 10,
                              .prefixes = 3,
                              .prefix_tokens = 40});
  const auto requests = Take(*workload, 60);
  std::set<std::vector<TokenId>> prefixes;
  for (const LoadRequest& request : requests) {
    const std::vector<TokenId> tokens = AllTokens(request);
    ASSERT_EQ(tokens.size(), 50u);
    prefixes.emplace(tokens.begin(), tokens.begin() + 40);
  }
  EXPECT_EQ(prefixes.size(), 3u);
}

TEST(Workload, ATurnContainsTheTurnsBeforeItWithTheirAnswers) {
  const auto workload = Make({.kind = WorkloadKind::kChat,
                              .seed = 1,
                              .prompt_tokens = 8,
                              .output_tokens = 3,
                              .system_tokens = 5,
                              .turns = 3});
  const LoadRequest first = *workload->Next();
  const AnswerContent answer = {.whole = true,
                                .text = "so be it",
                                .tokens = {7, 8, 9},
                                .prompt_tokens = 13,
                                .output_tokens = 3};
  const auto second = workload->After(first, answer);
  ASSERT_TRUE(second.has_value());
  std::vector<TokenId> expected = AllTokens(first);
  expected.insert(expected.end(), {7, 8, 9});
  const std::vector<TokenId> tokens = AllTokens(second->request);
  ASSERT_EQ(tokens.size(), expected.size() + 8);
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), tokens.begin()));
  EXPECT_EQ(second->request.pieces[2].role, PieceRole::kAssistant);
  EXPECT_EQ(PieceText(second->request.pieces[2]), "so be it");
  EXPECT_EQ(second->request.prompt_tokens, 24);
  EXPECT_EQ(second->request.conversation, first.conversation);
  EXPECT_GE(second->pause_us, 0);
  const auto third = workload->After(second->request, answer);
  ASSERT_TRUE(third.has_value());
  EXPECT_FALSE(workload->After(third->request, answer).has_value()) << "there are three turns";
  EXPECT_FALSE(workload->After(first, {.whole = false, .text = {}, .tokens = {}}).has_value());
}

// The later turns of a conversation must not depend on the order in which other answers end.
TEST(Workload, AConversationDoesNotDependOnTheOthers) {
  const WorkloadOptions options = {.kind = WorkloadKind::kChat, .seed = 2, .length_spread = 0.8};
  const AnswerContent answer = {.whole = true, .text = "x", .tokens = {1}, .output_tokens = 1};
  const auto early = Make(options);
  const LoadRequest a = *early->Next();
  const LoadRequest early_turn = early->After(a, answer)->request;
  const LoadRequest b = *early->Next();
  const auto late = Make(options);
  const LoadRequest c = *late->Next();
  const LoadRequest d = *late->Next();
  EXPECT_EQ(AllTokens(b), AllTokens(d));
  EXPECT_EQ(AllTokens(early_turn), AllTokens(late->After(c, answer)->request));
}

TEST(Workload, AConversationEndsWhenTheContextIsFull) {
  const auto workload = Make({.kind = WorkloadKind::kChat,
                              .seed = 1,
                              .context_length = 40,
                              .prompt_tokens = 16,
                              .output_tokens = 4,
                              .system_tokens = 8,
                              .turns = 9});
  const LoadRequest first = *workload->Next();
  EXPECT_FALSE(
      workload
          ->After(
              first,
              {.whole = true, .text = {}, .tokens = {}, .prompt_tokens = 24, .output_tokens = 4})
          .has_value());
  EXPECT_EQ(workload->clipped_conversations(), 1);
}

TEST(Workload, APromptWithChunksHasDifferentChunksOfThePool) {
  const auto workload = Make({.kind = WorkloadKind::kChunks,
                              .seed = 1,
                              .prompt_tokens = 6,
                              .system_tokens = 4,
                              .chunk_pool = 5,
                              .chunks = 3,
                              .chunk_tokens = 10});
  std::set<std::vector<TokenId>> pool;
  for (const LoadRequest& request : Take(*workload, 60)) {
    ASSERT_EQ(request.pieces.size(), 5u);
    EXPECT_EQ(request.pieces.front().role, PieceRole::kSystem);
    EXPECT_EQ(request.pieces.back().role, PieceRole::kQuestion);
    std::set<std::vector<TokenId>> chunks;
    for (size_t i = 1; i <= 3; ++i) chunks.insert(request.pieces[i].tokens);
    EXPECT_EQ(chunks.size(), 3u);
    pool.insert(chunks.begin(), chunks.end());
  }
  EXPECT_EQ(pool.size(), 5u);
}

// Random traces: the common prefix of two prompts is exactly that of their hash ids.
TEST(Workload, EqualHashIdsGiveEqualTokenPrefixes) {
  constexpr int32_t kBlock = 32;
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE(seed);
    SeededRandom random(seed);
    std::vector<TracedRequest> trace;
    for (int i = 0; i < 30; ++i) {
      TracedRequest request;
      request.at_us = i;
      const auto blocks = static_cast<int32_t>(1 + random.Below(6));
      // Ids of a small tree, so that many prompts share prefixes of different lengths.
      uint64_t id = 0;
      for (int32_t k = 0; k < blocks; ++k) {
        id = id * 3 + random.Below(2) + 1;
        request.hash_ids.push_back(id);
      }
      request.prompt_tokens = (blocks - 1) * kMooncakeBlockTokens +
                              static_cast<int32_t>(1 + random.Below(kMooncakeBlockTokens));
      trace.push_back(std::move(request));
    }
    const auto workload = Make({.kind = WorkloadKind::kMooncake,
                                .seed = seed,
                                .vocabulary = 1'000'000,
                                .trace_block_tokens = kBlock},
                               trace);
    const auto requests = Take(*workload, trace.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      const int32_t scaled = (trace[i].prompt_tokens * kBlock + 511) / 512;
      EXPECT_EQ(AllTokens(requests[i]).size(), static_cast<size_t>(scaled));
      for (size_t k = 0; k < i; ++k) {
        size_t blocks = 0;
        while (blocks < std::min(trace[i].hash_ids.size(), trace[k].hash_ids.size()) &&
               trace[i].hash_ids[blocks] == trace[k].hash_ids[blocks]) {
          ++blocks;
        }
        const size_t shorter =
            std::min(AllTokens(requests[i]).size(), AllTokens(requests[k]).size());
        EXPECT_EQ(CommonPrefix(requests[i], requests[k]), std::min(blocks * kBlock, shorter));
      }
    }
  }
}

TEST(Workload, ASwingHasLongPromptsForHalfAPeriodAndThenLongAnswers) {
  const WorkloadOptions options = {.kind = WorkloadKind::kSwing,
                                   .seed = 3,
                                   .prompt_tokens = 3200,
                                   .output_tokens = 800,
                                   .length_spread = 0.5,
                                   .swing_ratio = 16,
                                   .swing_period_s = 10};
  const auto workload = Make(options);
  for (int64_t at_s = 0; at_s < 40; ++at_s) {
    workload->set_at_us(at_s * 1'000'000);
    const LoadRequest request = *workload->Next();
    EXPECT_EQ(AllTokens(request).size(), static_cast<size_t>(request.prompt_tokens));
    const bool answers_are_long = at_s / 5 % 2 == 1;
    const int32_t mean = answers_are_long ? 800 : 3200;
    const int32_t longer = answers_are_long ? request.output_tokens : request.prompt_tokens;
    const int32_t shorter = answers_are_long ? request.prompt_tokens : request.output_tokens;
    EXPECT_GE(longer, mean / 2) << at_s;
    EXPECT_LE(longer, mean * 3 / 2) << at_s;
    EXPECT_NEAR(longer / 16.0, shorter, 0.5) << at_s;
  }
  EXPECT_EQ(SwingLengthsOf(options, 0).prompt_tokens, 3200);
  EXPECT_EQ(SwingLengthsOf(options, 0).output_tokens, 200);
  EXPECT_EQ(SwingLengthsOf(options, 1).prompt_tokens, 50);
  EXPECT_EQ(SwingLengthsOf(options, 1).output_tokens, 800);
}

TEST(Workload, WhatIsClippedIsCounted) {
  const std::vector<TracedRequest> trace = {
      {.at_us = 0, .prompt_tokens = 60, .output_tokens = 10, .hash_ids = {}},
      {.at_us = 1, .prompt_tokens = 95, .output_tokens = 30, .hash_ids = {}},
      {.at_us = 2, .prompt_tokens = 5, .output_tokens = 500, .hash_ids = {}}};
  const auto workload = Make({.kind = WorkloadKind::kAzure, .context_length = 100}, trace);
  const auto requests = Take(*workload, 9);
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_EQ(requests[0].prompt_tokens, 60);
  EXPECT_EQ(requests[1].prompt_tokens, 70) << "the answer keeps its length";
  EXPECT_EQ(requests[1].output_tokens, 30);
  EXPECT_EQ(requests[2].prompt_tokens, 1);
  EXPECT_EQ(requests[2].output_tokens, 99);
  for (const LoadRequest& request : requests) {
    EXPECT_EQ(AllTokens(request).size(), static_cast<size_t>(request.prompt_tokens));
    EXPECT_LE(request.prompt_tokens + request.output_tokens, 100);
  }
  EXPECT_EQ(requests[0].clipped_prompt_tokens + requests[0].clipped_output_tokens, 0);
  EXPECT_EQ(requests[1].clipped_prompt_tokens, 25);
  EXPECT_EQ(requests[1].clipped_output_tokens, 0);
  EXPECT_EQ(requests[2].clipped_prompt_tokens, 4);
  EXPECT_EQ(requests[2].clipped_output_tokens, 401);
}

TEST(Workload, OptionsThatDoNotFitAreNamed) {
  EXPECT_THAT(std::string(MakeWorkload({.kind = WorkloadKind::kAzure}, {}).status().message()),
              HasSubstr("the trace has no requests"));
  EXPECT_THAT(
      std::string(MakeWorkload({.kind = WorkloadKind::kChunks, .chunk_pool = 2, .chunks = 3}, {})
                      .status()
                      .message()),
      HasSubstr("--chunks is 3; must be at most --chunk-pool, which is 2"));
  EXPECT_THAT(std::string(MakeWorkload({.kind = WorkloadKind::kChunks, .context_length = 100}, {})
                              .status()
                              .message()),
              HasSubstr("the target's context holds 100"));
  EXPECT_THAT(
      std::string(ParseWorkloadKind("x").status().message()),
      HasSubstr("must be one of synthetic, shared-prefix, chat, chunks, mooncake, azure, swing"));
  EXPECT_THAT(
      std::string(
          MakeWorkload({.kind = WorkloadKind::kSwing, .swing_ratio = 0.5}, {}).status().message()),
      HasSubstr("--swing-ratio is 0.5; must be at least 1"));
  EXPECT_THAT(
      std::string(
          MakeWorkload({.kind = WorkloadKind::kSwing, .swing_period_s = 0}, {}).status().message()),
      HasSubstr("--swing-period-s is 0; must be positive"));
  EXPECT_FALSE(MakeWorkload({.kind = WorkloadKind::kSwing, .swing_ratio = NAN}, {}).ok());
  EXPECT_FALSE(MakeWorkload({.kind = WorkloadKind::kSwing, .swing_period_s = NAN}, {}).ok());
}

}  // namespace
}  // namespace baton
