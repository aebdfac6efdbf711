#include "engine/generation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/engine/fake_worker_parts.h"

namespace baton {
namespace {

constexpr int64_t kArrivalUs = 1000;

class GenerationTest : public ::testing::Test {
 protected:
  Generation Make(int32_t length_limit = 100) {
    return Generation(request_, length_limit, *tokenizer_, /*hash_logits=*/false, kArrivalUs);
  }
  static GenerateRequest PromptOf(std::string_view text) {
    GenerateRequest request;
    request.prompt = Bytes(text);
    return request;
  }
  static DrawnToken Token(TokenId token) {
    DrawnToken drawn;
    drawn.token = token;
    return drawn;
  }
  // Feeds tokens until the generation ends. Returns the text of the answer.
  std::string Feed(Generation& generation, std::span<const TokenId> tokens) {
    std::string text;
    for (const TokenId token : tokens) {
      Generation::Emission emission = generation.Accept(Token(token), kArrivalUs + 10);
      text += emission.output.text;
      finished_ = emission.finished;
      if (finished_) break;
    }
    const FinishInfo info = generation.Finish(finished_.value_or(FinishReason::kLength), 5000);
    return text + info.text;
  }

  std::unique_ptr<const Tokenizer> tokenizer_ = MakeByteTokenizer();
  GenerateRequest request_ = PromptOf("ab");
  std::optional<FinishReason> finished_;
};

TEST_F(GenerationTest, EndsAtAStopStringThatSpansTokens) {
  request_.sampling.stop = {"STOP"};
  Generation generation = Make();
  EXPECT_EQ(Feed(generation, Bytes("go on STOP and more")), "go on ");
  EXPECT_EQ(finished_, FinishReason::kStop);
  EXPECT_EQ(generation.completion_tokens(), 10);
}

TEST_F(GenerationTest, FlushesTextThatMightHaveBecomeAStopString) {
  request_.sampling.stop = {"STOP"};
  Generation generation = Make(2 + 5);
  EXPECT_EQ(Feed(generation, Bytes("goSTO")), "goSTO");
  EXPECT_EQ(finished_, FinishReason::kLength);
}

TEST_F(GenerationTest, EndsAtTheModelsEndTokenWithoutItsText) {
  Generation generation = Make();
  EXPECT_EQ(Feed(generation, std::vector<TokenId>{'x', kEndToken, 'y'}), "x");
  EXPECT_EQ(finished_, FinishReason::kStop);
  EXPECT_EQ(generation.completion_tokens(), 2);
}

TEST_F(GenerationTest, IgnoresTheEndTokenWhenAskedTo) {
  request_.sampling.ignore_eos = true;
  Generation generation = Make(2 + 3);
  EXPECT_EQ(Feed(generation, std::vector<TokenId>{'x', kEndToken, 'y'}), "xy");
  EXPECT_EQ(finished_, FinishReason::kLength);
}

TEST_F(GenerationTest, EndsAtAStopTokenWithoutItsTextAlsoWhenEndTokensAreIgnored) {
  request_.sampling.ignore_eos = true;
  request_.sampling.stop_token_ids = {'q'};
  Generation generation = Make();
  EXPECT_EQ(Feed(generation, Bytes("xyqz")), "xy");
  EXPECT_EQ(finished_, FinishReason::kStop);
}

TEST_F(GenerationTest, TheFirstTokenBehindMinTokensMayEnd) {
  request_.sampling.min_tokens = 2;
  Generation generation = Make();
  Feed(generation, std::vector<TokenId>{kEndToken, kEndToken, kEndToken, 'x'});
  EXPECT_EQ(finished_, FinishReason::kStop);
  EXPECT_EQ(generation.completion_tokens(), 3);
}

TEST_F(GenerationTest, StopStringsCountFromTheFirstTokenBehindMinTokens) {
  request_.sampling.stop = {"STOP"};
  request_.sampling.min_tokens = 6;
  Generation early = Make();
  EXPECT_EQ(Feed(early, Bytes("STOP or STOP it")), "STOP or ");
  Generation across = Make();
  EXPECT_EQ(Feed(across, Bytes("on STOP, then STOP")), "on STOP, then ")
      << "the match began in the sixth token";
  Generation at_once = Make();
  EXPECT_EQ(Feed(at_once, Bytes("go on STOP")), "go on ");
}

TEST_F(GenerationTest, EndsWithLengthAtTheLimitOfPromptAndAnswer) {
  Generation generation = Make(2 + 3);
  EXPECT_EQ(Feed(generation, Bytes("abcdef")), "abc");
  EXPECT_EQ(finished_, FinishReason::kLength);
}

TEST_F(GenerationTest, SplitCharactersComeOutWhole) {
  Generation generation = Make(2 + 4);
  std::vector<std::string> parts;
  for (const TokenId token : Bytes("\xc3\xa9x\xe2")) {
    parts.push_back(generation.Accept(Token(token), 0).output.text);
  }
  EXPECT_EQ(parts, (std::vector<std::string>{"", "\xc3\xa9", "x", ""}));
  EXPECT_EQ(generation.Finish(FinishReason::kLength, 0).text, "\xef\xbf\xbd");
}

TEST_F(GenerationTest, ReportsLogProbabilitiesOnlyWhenAskedTo) {
  DrawnToken drawn = Token('x');
  drawn.detail = {.logprob = -1, .top = {{.token = 'x', .logprob = -1}}};
  EXPECT_TRUE(Make().Accept(drawn, 0).output.logprobs.empty());
  request_.sampling.logprobs = 1;
  const Generation::Emission emission = Make().Accept(drawn, 0);
  ASSERT_EQ(emission.output.logprobs.size(), 1u);
  EXPECT_EQ(emission.output.logprobs[0].top, drawn.detail.top);
}

TEST_F(GenerationTest, TheLedgerCountsFromArrival) {
  Generation generation = Make();
  generation.Accept(Token('x'), kArrivalUs + 100);
  generation.Accept(Token('y'), kArrivalUs + 130);
  generation.Accept(Token('z'), kArrivalUs + 150);
  const FinishInfo info = generation.Finish(FinishReason::kStop, kArrivalUs + 200);
  EXPECT_EQ(info.ledger.first_token_us, 100);
  EXPECT_EQ(info.ledger.inter_token_us, 25);
  EXPECT_EQ(info.ledger.total_us, 200);
  EXPECT_EQ(info.prompt_tokens, 2);
  EXPECT_EQ(info.completion_tokens, 3);
}

TEST_F(GenerationTest, ContinuesTheTokensOfAnotherWorker) {
  request_.sampling.stop = {"STOP"};
  request_.sampling.min_tokens = 3;
  const std::vector<TokenId> answer = Bytes("go h\u00e9re ST and STOP");
  Generation whole = Make();
  std::vector<std::string> texts;
  for (const TokenId token : answer) {
    texts.push_back(whole.Accept(Token(token), kArrivalUs).output.text);
  }
  for (size_t before = 0; before < answer.size(); ++before) {
    SCOPED_TRACE(before);
    Generation resumed = Make();
    const auto finished = resumed.Resume(
        {.tokens = {answer.begin(), answer.begin() + before}, .logits_hash = 0}, kArrivalUs);
    ASSERT_TRUE(finished.ok()) << finished.status();
    EXPECT_FALSE(finished->has_value());
    for (size_t i = before; i < answer.size(); ++i) {
      const Generation::Emission emission = resumed.Accept(Token(answer[i]), kArrivalUs);
      EXPECT_EQ(emission.output.text, texts[i]) << i;
      EXPECT_EQ(emission.finished.has_value(), i + 1 == answer.size()) << i;
    }
    EXPECT_EQ(resumed.Finish(FinishReason::kStop, 5000).completion_tokens, answer.size());
  }
}

TEST_F(GenerationTest, AcceptsAnAnswerThatHasEndedAndRefusesTokensAfterItsEnd) {
  request_.sampling.stop = {"STOP"};
  Generation ended = Make();
  const auto finished = ended.Resume({.tokens = Bytes("one STOP"), .logits_hash = 0}, kArrivalUs);
  ASSERT_TRUE(finished.ok());
  EXPECT_EQ(*finished, FinishReason::kStop);
  EXPECT_EQ(ended.Finish(**finished, 5000).text, "");

  Generation beyond = Make();
  const auto refused =
      beyond.Resume({.tokens = Bytes("one STOP two"), .logits_hash = 0}, kArrivalUs);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.status().message(), ::testing::HasSubstr("generated_token_ids[8]"));
}

TEST_F(GenerationTest, EndsWithoutATokenToo) {
  const FinishInfo info = Make().Finish(FinishReason::kLength, kArrivalUs + 7);
  EXPECT_EQ(info.completion_tokens, 0);
  EXPECT_EQ(info.ledger.first_token_us, 0);
  EXPECT_EQ(info.ledger.total_us, 7);
}

TEST(TokenSource, ChainsTheHashAcrossAHandOff) {
  SamplingParams params;
  params.temperature = 0;
  const std::vector<TokenId> prompt = {1};
  const std::vector<float> row = {0, 1, 2, 3};
  Sampler sampler;
  TokenSource one(params, prompt, {}, true);
  TokenSource prefills(params, prompt, {}, true);
  TokenSource decodes(params, prompt, {}, true);
  auto first = one.Draw(row, 1, sampler);
  one.Accept(*first);
  decodes.Accept(*prefills.Draw(row, 1, sampler));
  EXPECT_EQ(decodes.logits_hash(), one.logits_hash());
  one.Accept(*one.Draw(row, 2, sampler));
  decodes.Accept(*decodes.Draw(row, 2, sampler));
  EXPECT_EQ(decodes.logits_hash(), one.logits_hash());
  EXPECT_NE(one.logits_hash(), first->logits_hash);
}

TEST(TokenSource, HasNoHashWithHashingOffEvenIfAPeerSentOne) {
  TokenSource source({}, std::vector<TokenId>{1}, {}, false);
  DrawnToken drawn;
  drawn.logits_hash = 7;
  source.Accept(drawn);
  EXPECT_EQ(source.logits_hash(), 0u);
}

TEST(TokenSource, HostAndDeviceDrawTheSameTokens) {
  SamplingParams params;
  params.seed = 11;
  const std::vector<TokenId> prompt = {1};
  const std::vector<float> row(50, 0.0f);
  Sampler sampler;
  Sampler other;
  std::vector<TokenId> drawn;
  for (int32_t position = 1; position < 20; ++position) {
    const auto here = TokenSource(params, prompt, {}, false).Draw(row, position, sampler);
    const auto there = TokenSource(params, prompt, {}, true).Draw(row, position, other);
    EXPECT_EQ(here->token, there->token);
    drawn.push_back(here->token);
  }
  // Draws depend on the position.
  EXPECT_GT(std::set<TokenId>(drawn.begin(), drawn.end()).size(), 5u);
}

TEST(TokenSource, PassesASamplingErrorOn) {
  TokenSource source({}, std::vector<TokenId>{1}, {}, false);
  Sampler sampler;
  const std::vector<float> row = {0, std::numeric_limits<float>::quiet_NaN()};
  EXPECT_EQ(source.Draw(row, 1, sampler).status().code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace baton
