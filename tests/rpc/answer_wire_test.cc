#include "rpc/answer_wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace baton {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Pair;
using ::testing::StrEq;

TEST(AnswerWire, TheStartHasThePrompt) {
  v1::GenerateResponse wire;
  wire.mutable_started()->set_request_id("r");
  wire.mutable_started()->set_prompt_tokens(2);
  wire.mutable_started()->set_seed(9);
  wire.mutable_started()->add_prompt_token_ids(4);
  const auto started = std::get<AnswerStarted>(*AnswerEventFromWire(wire));
  EXPECT_EQ(started.request_id, "r");
  EXPECT_EQ(started.prompt_tokens, 2);
  EXPECT_EQ(started.seed, 9u);
  EXPECT_THAT(started.prompt_token_ids, ElementsAre(4));
}

TEST(AnswerWire, TokensHaveTextAndLogprobs) {
  v1::GenerateResponse wire;
  v1::Tokens& sent = *wire.mutable_tokens();
  sent.set_choice(3);
  sent.set_text("hi");
  sent.add_token_ids(7);
  v1::TokenDetail& detail = *sent.add_logprobs();
  detail.set_logprob(-1);
  v1::TokenLogprob& top = *detail.add_top();
  top.set_token_id(8);
  top.set_logprob(-2);
  const auto tokens = std::get<AnswerTokens>(*AnswerEventFromWire(wire));
  EXPECT_EQ(tokens.choice, 3);
  EXPECT_EQ(tokens.text, "hi");
  EXPECT_THAT(tokens.token_ids, ElementsAre(7));
  ASSERT_EQ(tokens.logprobs.size(), 1u);
  EXPECT_EQ(tokens.logprobs[0].logprob, -1);
  EXPECT_THAT(tokens.logprobs[0].top, ElementsAre(TokenLogprob{.token = 8, .logprob = -2}));
}

// A message with a field that this process does not forward would lose a figure without notice.
TEST(AnswerWire, EveryNumberOfTheLedgerIsAFigureWithItsName) {
  v1::GenerateResponse wire;
  v1::Finished& sent = *wire.mutable_finished();
  sent.set_reason(v1::FINISH_REASON_STOP);
  sent.set_choice(1);
  sent.set_text("end");
  sent.set_logits_hash(5);
  sent.mutable_usage()->set_prompt_tokens(10);
  sent.mutable_usage()->set_cached_tokens(6);
  sent.mutable_usage()->set_completion_tokens(3);
  v1::Ledger& ledger = *sent.mutable_ledger();
  ledger.set_decode_worker("d");
  ledger.set_prefill_worker("p");
  ledger.set_pull_source("q");
  const auto* const fields = v1::Ledger::descriptor();
  const auto* const reflection = v1::Ledger::GetReflection();
  int numbers = 0;
  for (int i = 0; i < fields->field_count(); ++i) {
    const auto* const field = fields->field(i);
    if (field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_INT32) {
      reflection->SetInt32(&ledger, field, field->number());
    } else if (field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_INT64) {
      reflection->SetInt64(&ledger, field, field->number());
    } else {
      continue;
    }
    ++numbers;
  }
  const auto finished = std::get<AnswerFinished>(*AnswerEventFromWire(wire));
  EXPECT_EQ(finished.finish_reason, "stop");
  EXPECT_EQ(finished.choice, 1);
  EXPECT_EQ(finished.text, "end");
  EXPECT_EQ(finished.logits_hash, 5u);
  EXPECT_EQ(finished.prompt_tokens, 10);
  EXPECT_EQ(finished.cached_tokens, 6);
  EXPECT_EQ(finished.completion_tokens, 3);
  EXPECT_EQ(finished.decode_worker, "d");
  EXPECT_EQ(finished.prefill_worker, "p");
  EXPECT_EQ(finished.pull_source, "q");
  EXPECT_EQ(finished.ledger.size(), static_cast<size_t>(numbers));
  for (int i = 0; i < fields->field_count(); ++i) {
    const auto* const field = fields->field(i);
    if (field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_STRING) continue;
    EXPECT_THAT(finished.ledger, Contains(Pair(StrEq(field->name()), field->number())));
  }
}

TEST(AnswerWire, AnEventOfANewerProtocolIsNothing) {
  EXPECT_FALSE(AnswerEventFromWire(v1::GenerateResponse()).has_value());
}

}  // namespace
}  // namespace baton
