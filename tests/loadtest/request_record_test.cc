#include "loadtest/request_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton {
namespace {

using ::testing::ElementsAre;

LoadRequest SomeRequest() {
  LoadRequest request;
  request.number = 3;
  request.prompt_tokens = 10;
  return request;
}

AnswerEnd Whole() {
  AnswerEnd end;
  end.outcome = RequestOutcome::kWhole;
  return end;
}

TEST(AnswerTimer, TimesCountFromTheIntendedSend) {
  AnswerTimer timer(SomeRequest(), /*intended_us=*/1'000, /*sent_us=*/3'000);
  timer.OnContent(11'000, 1);
  timer.OnContent(16'000, 1);
  timer.OnContent(19'000, 2);
  timer.OnEnd(21'000, Whole());
  const RequestRecord& record = timer.record();
  EXPECT_EQ(record.late_ms(), 2);
  EXPECT_EQ(record.ttft_ms(), 10);
  EXPECT_EQ(record.e2e_ms(), 20);
  EXPECT_THAT(record.gaps_us, ElementsAre(5'000, 3'000));
  EXPECT_EQ(record.output_tokens, 4);
  EXPECT_DOUBLE_EQ(record.tpot_ms(), 8.0 / 3);
  EXPECT_EQ(record.prompt_tokens, 10) << "planned, because the target told no count";
  EXPECT_EQ(record.cached_tokens, -1);
}

TEST(AnswerTimer, CountsOfTheTargetReplaceThoseOfTheMessages) {
  AnswerTimer timer(SomeRequest(), 0, 0);
  timer.OnContent(1, 1);
  AnswerEnd end = Whole();
  end.prompt_tokens = 12;
  end.cached_tokens = 0;
  end.output_tokens = 7;
  end.ledger = {{"queue_us", 5}};
  timer.OnEnd(2, end);
  EXPECT_EQ(timer.record().prompt_tokens, 12);
  EXPECT_EQ(timer.record().cached_tokens, 0);
  EXPECT_EQ(timer.record().output_tokens, 7);
  EXPECT_EQ(timer.record().ledger.size(), 1u);
}

TEST(AnswerTimer, AWholeAnswerWithoutContentIsAFailure) {
  AnswerTimer timer(SomeRequest(), 0, 0);
  timer.OnEnd(5, Whole());
  EXPECT_EQ(timer.record().outcome, RequestOutcome::kFailed);
  EXPECT_EQ(timer.record().error, "no content");
  EXPECT_FALSE(timer.record().has_tpot());
}

// A model may end its answer at once, or choose tokens without text.
TEST(AnswerTimer, CountedTokensWithoutTextAreAWholeAnswerThatBeginsAtItsEnd) {
  AnswerTimer timer(SomeRequest(), 0, 0);
  AnswerEnd end = Whole();
  end.output_tokens = 5;
  timer.OnEnd(5, end);
  EXPECT_EQ(timer.record().outcome, RequestOutcome::kWhole);
  EXPECT_EQ(timer.record().first_content_us, 5);
  EXPECT_EQ(timer.record().error, "");
  EXPECT_FALSE(timer.record().has_tpot());
}

}  // namespace
}  // namespace baton
