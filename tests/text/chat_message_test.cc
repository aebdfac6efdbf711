#include "text/chat_message.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Refusal(const std::vector<ChatMessage>& messages, const ChatLimits& limits = {}) {
  const absl::Status status = ValidateMessages(messages, limits);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

TEST(ValidateMessages, TakesAnyOrderOfKnownRoles) {
  for (const char* role : {"system", "user", "assistant", "tool", "developer"}) {
    EXPECT_TRUE(
        ValidateMessages(std::vector<ChatMessage>{{role, "", {}}, {role, "é", "n"}}, {}).ok());
  }
}

TEST(ValidateMessages, NamesTheMessageTheValueAndTheLimit) {
  EXPECT_THAT(Refusal({}), HasSubstr("no messages"));
  EXPECT_THAT(Refusal({{"user", "", {}}, {"root\n", "", {}}}),
              AllOf(HasSubstr("message 1"), HasSubstr("root\\n")));
  EXPECT_THAT(Refusal({{"user", "a\xff", {}}}), HasSubstr("content is not valid UTF-8 at byte 1"));
  EXPECT_THAT(Refusal({{"user", "", "\xc3"}}), HasSubstr("name is not valid UTF-8 at byte 0"));
  ChatLimits limits;
  limits.max_messages = 1;
  EXPECT_THAT(Refusal({{"user", "", {}}, {"user", "", {}}}, limits),
              AllOf(HasSubstr("2 messages"), HasSubstr("limit is 1")));
  limits = {};
  limits.max_content_bytes = 3;
  EXPECT_THAT(Refusal({{"user", "abcd", {}}}, limits),
              AllOf(HasSubstr("4 bytes"), HasSubstr("limit is 3")));
  limits = {};
  limits.max_total_bytes = 9;
  EXPECT_THAT(Refusal({{"user", "a", {}}, {"user", "a", {}}}, limits),
              AllOf(HasSubstr("10 bytes"), HasSubstr("limit for all is 9")));
}

}  // namespace
}  // namespace baton
