#include "loadtest/openai_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "loadtest/seeded_random.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ContentSink final : public AnswerSink {
 public:
  void OnContent(std::string_view text, std::span<const TokenId> token_ids,
                 int32_t tokens) override {
    texts.emplace_back(text);
    ids.insert(ids.end(), token_ids.begin(), token_ids.end());
    count += tokens;
  }
  void OnLastText(std::string_view) override {}
  void OnEnd(AnswerEnd) override {}

  std::vector<std::string> texts;
  std::vector<TokenId> ids;
  int32_t count = 0;
};

std::string Event(const std::string& data) { return "data: " + data + "\n\n"; }

TEST(OpenAiStream, AChatHasContentAfterItsRole) {
  ContentSink sink;
  OpenAiStream stream(sink);
  stream.Feed(Event(R"({"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]})"));
  EXPECT_THAT(sink.texts, IsEmpty()) << "the role is no content";
  stream.Feed(": ping\n\n");
  stream.Feed(Event(R"({"choices":[{"index":0,"delta":{"content":"Hel"}}]})"));
  stream.Feed(Event(R"({"choices":[{"index":0,"delta":{"content":"lo"},"finish_reason":null}]})"));
  stream.Feed(Event(R"({"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]})"));
  stream.Feed(Event(R"({"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,)"
                    R"("prompt_tokens_details":{"cached_tokens":4}}})"));
  EXPECT_FALSE(stream.ended());
  stream.Feed(Event("[DONE]"));
  EXPECT_TRUE(stream.ended());
  EXPECT_THAT(sink.texts, ElementsAre("Hel", "lo"));
  const AnswerEnd end = stream.TakeEnd();
  EXPECT_EQ(end.outcome, RequestOutcome::kWhole);
  EXPECT_EQ(end.prompt_tokens, 9);
  EXPECT_EQ(end.output_tokens, 2);
  EXPECT_EQ(end.cached_tokens, 4);
}

TEST(OpenAiStream, ACompletionHasTextAndMayHaveTokenIdsAndALedger) {
  ContentSink sink;
  OpenAiStream stream(sink);
  stream.Feed(Event(R"({"choices":[{"text":"a","token_ids":[5,6]}]})"));
  stream.Feed(Event(R"({"choices":[{"text":"","token_ids":[7]}]})"));
  stream.Feed(Event(R"({"choices":[],"ledger":{"queue_us":3,"prefill_worker":"p0"}})"));
  stream.Feed(Event("[DONE]"));
  EXPECT_THAT(sink.ids, ElementsAre(5, 6, 7));
  EXPECT_EQ(sink.count, 3);
  const AnswerEnd end = stream.TakeEnd();
  EXPECT_EQ(end.ledger, (std::vector<std::pair<std::string, int64_t>>{{"queue_us", 3}}));
  EXPECT_EQ(end.cached_tokens, -1);
}

TEST(OpenAiStream, AnErrorInTheStreamIsAFailure) {
  ContentSink sink;
  OpenAiStream stream(sink);
  stream.Feed(Event(R"({"choices":[{"text":"a"}]})"));
  stream.Feed(Event(R"({"error":{"message":"worker lost","code":"internal"}})"));
  EXPECT_TRUE(stream.ended());
  stream.Feed(Event("[DONE]"));
  const AnswerEnd end = stream.TakeEnd();
  EXPECT_EQ(end.outcome, RequestOutcome::kFailed);
  EXPECT_EQ(end.error, "error in stream internal");
  EXPECT_EQ(end.error_message, "worker lost");
}

TEST(OpenAiStream, AStreamWithoutItsEndIsAFailure) {
  ContentSink sink;
  OpenAiStream cut(sink);
  cut.Feed(Event(R"({"choices":[{"text":"a"}]})"));
  EXPECT_EQ(cut.TakeEnd().error, "cut stream");
  OpenAiStream bad(sink);
  bad.Feed(Event("hello"));
  EXPECT_EQ(bad.TakeEnd().error, "bad stream");
}

TEST(OpenAiStream, AStatusIsARefusalOrAFailure) {
  const AnswerEnd busy =
      OpenAiError(429, R"({"error":{"message":"slow down","code":"rate_limit_exceeded"}})");
  EXPECT_EQ(busy.outcome, RequestOutcome::kRefused);
  EXPECT_EQ(busy.error, "429 rate_limit_exceeded");
  EXPECT_EQ(busy.error_message, "slow down");
  EXPECT_EQ(OpenAiError(503, R"({"error":{"type":"overloaded"}})").error, "503 overloaded");
  const AnswerEnd bad = OpenAiError(500, "<html>oops");
  EXPECT_EQ(bad.outcome, RequestOutcome::kFailed);
  EXPECT_EQ(bad.error, "500");
  EXPECT_EQ(bad.error_message, "<html>oops");
}

// Damaged streams end as some answer and never crash.
TEST(OpenAiStream, DamagedStreamsDoNotCrash) {
  const std::string good =
      Event(R"({"choices":[{"text":"a","delta":{"content":"b"},"token_ids":[1]}]})") +
      Event(
          R"({"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2},"ledger":{"a":1}})") +
      Event(R"({"error":{"message":"m","code":5}})") + Event("[DONE]");
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    SeededRandom random(seed);
    std::string damaged = good;
    for (int i = 0; i < 4; ++i) {
      damaged[random.Below(damaged.size())] = "[]{}\",:0a\n"[random.Below(10)];
    }
    ContentSink sink;
    OpenAiStream stream(sink);
    for (size_t at = 0; at < damaged.size(); at += 13) stream.Feed(damaged.substr(at, 13));
    (void)stream.TakeEnd();
  }
}

}  // namespace
}  // namespace baton
