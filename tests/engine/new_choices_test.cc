#include "engine/new_choices.h"

#include <gtest/gtest.h>

#include "tests/engine/machine_bench.h"

namespace baton {
namespace {

class NewChoicesTest : public testing::Test {
 protected:
  static GenerateRequest Request(std::string_view prompt, int32_t n = 1) {
    GenerateRequest request;
    request.request_id = "name";
    request.prompt = Bytes(prompt);
    request.n = n;
    request.sampling.temperature = 0;
    request.sampling.max_tokens = 20;
    request.priority = 5;
    return request;
  }
  absl::StatusOr<NewChoices> Make(const GenerateRequest& request, int64_t now_us = 1000) {
    return MakeChoices(options_, /*first=*/7, request, std::make_shared<RecordingSink>(record_),
                       *bench_.tokenizer, now_us);
  }
  SequenceSpec Describe(NewChoices& choices, GenerateRequest& request) {
    return DescribeSequence(options_, bench_.cache, choices, request);
  }

  MachineBench bench_;
  const ChoiceOptions options_ = {.limits = MachineBench::Limits()};
  const std::shared_ptr<SinkRecord> record_ = std::make_shared<SinkRecord>();
};

TEST_F(NewChoicesTest, OneAnswerContinuesItsGeneratedTokens) {
  GenerateRequest request = Request("prompt");
  request.generated = {{.tokens = Bytes("xyz")}};
  absl::StatusOr<NewChoices> choices = Make(request);
  ASSERT_TRUE(choices.ok()) << choices.status();
  const SequenceSpec spec = Describe(*choices, request);
  ASSERT_EQ(choices->live.size(), 1);
  EXPECT_EQ(spec.tokens, Bytes("promptxyz"));
  EXPECT_EQ(spec.id, SequenceId(7));
  EXPECT_EQ(spec.max_tokens, 26);
  EXPECT_EQ(spec.priority, 5);
  EXPECT_EQ(spec.forks, 0);
  EXPECT_EQ(spec.fork_blocks, 0);
  EXPECT_EQ(choices->live[0]->prompt_tokens, 9);
  EXPECT_EQ(choices->live[0]->resumed_tokens, 3);
  EXPECT_FALSE(choices->live[0]->unforked);
}

TEST_F(NewChoicesTest, SeveralChoicesForkAtThePromptsEndAndTheirTailsNeedBlocks) {
  GenerateRequest request = Request("prompt", 3);
  request.generated = {{.tokens = Bytes("x")}, {}, {.tokens = Bytes("uvwxyz")}};
  absl::StatusOr<NewChoices> choices = Make(request);
  ASSERT_TRUE(choices.ok()) << choices.status();
  const SequenceSpec spec = Describe(*choices, request);
  ASSERT_EQ(choices->live.size(), 3);
  EXPECT_EQ(spec.tokens, Bytes("prompt"));
  EXPECT_EQ(spec.forks, 2);
  // The prompt fills block 0 and half of block 1. Each tail's own blocks start with block 1.
  EXPECT_EQ(spec.fork_blocks, (2 - 1) + (3 - 1));
  for (const auto& choice : choices->live) {
    EXPECT_TRUE(choice->unforked);
    EXPECT_EQ(choice->prompt_tokens, 6);
    EXPECT_EQ(choice->handle(), 7u + choice->index);
  }
  EXPECT_EQ(choices->live[2]->tail, Bytes("uvwxyz"));
}

TEST_F(NewChoicesTest, ChoicesThatHaveEndedAreOnlyFinished) {
  GenerateRequest request = Request("prompt", 3);
  request.generated = {{.tokens = {}, .finished = true}, {.tokens = {'x', kEndToken}}, {}};
  absl::StatusOr<NewChoices> choices = Make(request);
  ASSERT_TRUE(choices.ok()) << choices.status();
  ASSERT_EQ(choices->live.size(), 1);
  EXPECT_EQ(choices->live[0]->index, 2);
  ASSERT_EQ(choices->finished.size(), 1);
  EXPECT_EQ(choices->finished[0].choice, 1);
  EXPECT_FALSE(choices->finished[0].last);
  request.generated[2].finished = true;
  choices = Make(request);
  ASSERT_TRUE(choices.ok()) << choices.status();
  EXPECT_TRUE(choices->live.empty());
  EXPECT_TRUE(choices->finished[0].last);
}

TEST_F(NewChoicesTest, RefusesPartsThatDoNotFitTheChoices) {
  GenerateRequest request = Request("prompt", 2);
  request.generated = {{.tokens = {'x'}}};
  EXPECT_EQ(Make(request).status(),
            absl::InvalidArgumentError("generated has 1 parts for 2 choices"));
  request.generated = {{.tokens = {}, .finished = true}, {.tokens = {}, .finished = true}};
  EXPECT_EQ(Make(request).status(),
            absl::InvalidArgumentError("all 2 choices are finished: none is left to continue"));
}

TEST_F(NewChoicesTest, TheLongestTimeoutIsADeadlineInTheFuture) {
  GenerateRequest request = Request("prompt");
  EXPECT_EQ(Make(request)->live[0]->request->deadline_us, 0);
  request.timeout_ms = 3;
  EXPECT_EQ(Make(request)->live[0]->request->deadline_us, 1000 + 3000);
  request.timeout_ms = std::numeric_limits<int64_t>::max();
  EXPECT_GT(Make(request)->live[0]->request->deadline_us, 1000);
}

}  // namespace
}  // namespace baton
