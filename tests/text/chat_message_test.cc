#include "text/chat_message.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

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
  EXPECT_THAT(Refusal({}), HasSubstr("messages is empty"));
  EXPECT_THAT(Refusal({{"user", "", {}}, {"root\n", "", {}}}),
              HasSubstr("messages[1].role is \"root\\n"));
  EXPECT_THAT(Refusal({{"user", "a\xff", {}}}), HasSubstr("content is not valid UTF-8 at byte 1"));
  EXPECT_THAT(Refusal({{"user", "", "\xc3"}}), HasSubstr("name is not valid UTF-8 at byte 0"));
  ChatLimits limits;
  limits.max_messages = 1;
  EXPECT_THAT(Refusal({{"user", "", {}}, {"user", "", {}}}, limits),
              HasSubstr("messages has 2 entries; at most 1 are allowed"));
  limits = {};
  limits.max_content_bytes = 3;
  EXPECT_THAT(Refusal({{"user", "abcd", {}}}, limits),
              HasSubstr("messages[0].content has 4 bytes; at most 3 are allowed"));
  limits = {};
  limits.max_total_bytes = 9;
  EXPECT_THAT(Refusal({{"user", "a", {}}, {"user", "a", {}}}, limits),
              HasSubstr("have 10 bytes; at most 9 are allowed"));
}

}  // namespace
}  // namespace baton
