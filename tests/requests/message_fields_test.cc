#include "requests/message_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/error_details.h"

namespace baton {
namespace {

using Json = nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const JsonPlace kRoot("{}", kNotALine);

absl::StatusOr<std::vector<ChatMessage>> Read(const char* json, IgnoredFields* ignored) {
  return ReadMessages(kRoot.Member("messages"), Json::parse(json), ignored);
}

std::string Refusal(const char* json, IgnoredFields* ignored, const char* param) {
  const absl::Status status = Read(json, ignored).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << json;
  EXPECT_EQ(ErrorParam(status), param) << json;
  return std::string(status.message());
}

TEST(MessageFields, ContentIsTextOrTextPartsOrNull) {
  IgnoredFields ignored;
  const auto messages = Read(
      R"([{"role":"user","content":"a"},
          {"role":"user","content":[{"type":"text","text":"b"},{"type":"text","text":"c"}]},
          {"role":"assistant","content":null}, {"role":"tool"}])",
      &ignored);
  ASSERT_TRUE(messages.ok()) << messages.status();
  ASSERT_EQ(messages->size(), 4u);
  EXPECT_EQ((*messages)[0].content, "a");
  EXPECT_EQ((*messages)[1].content, "b\nc");
  EXPECT_EQ((*messages)[2].content, "");
  EXPECT_EQ((*messages)[3].role, "tool");
  EXPECT_TRUE(ignored.names().empty());
}

TEST(MessageFields, UnknownMembersAreFaultsOrNamed) {
  const char* const json =
      R"([{"role":"user","content":[{"type":"text","text":"b","cache_control":{}}],"name":"x"}])";
  EXPECT_EQ(Refusal(json, nullptr, "messages[0].content[0].cache_control"),
            "\"messages[0].content[0].cache_control\" is not known");
  IgnoredFields ignored;
  ASSERT_TRUE(Read(json, &ignored).ok());
  EXPECT_THAT(ignored.names(),
              ElementsAre("messages[].content[].cache_control", "messages[].name"));
}

TEST(MessageFields, WhatChangesTheAnswerIsRefusedUnlessItIsEmpty) {
  IgnoredFields ignored;
  EXPECT_EQ(Refusal(R"([{"role":"assistant","tool_calls":[{"id":"a"}]}])", &ignored,
                    "messages[0].tool_calls"),
            "\"messages[0].tool_calls\" is not supported; leave it out");
  EXPECT_THAT(
      Refusal(R"([{"role":"assistant","audio":{"id":"a"}}])", &ignored, "messages[0].audio"),
      HasSubstr("not supported"));
  EXPECT_THAT(Refusal(R"([{"role":"user","content":[{"type":"text","text":"a"},
                           {"type":"image_url","image_url":{"url":"x"}}]}])",
                      &ignored, "messages[0].content[1].type"),
              HasSubstr("is \"image_url\"; only \"text\" is supported"));
  EXPECT_TRUE(
      Read(
          R"([{"role":"assistant","content":"a","tool_calls":[],"function_call":null,"audio":null}])",
          &ignored)
          .ok());
  EXPECT_TRUE(ignored.names().empty());
}

TEST(MessageFields, WrongTypesAreRefused) {
  IgnoredFields ignored;
  EXPECT_EQ(Refusal("{}", &ignored, "messages"), "\"messages\" must be an array of messages");
  EXPECT_EQ(Refusal("[1]", &ignored, "messages[0]"), "\"messages[0]\" must be an object");
  EXPECT_THAT(Refusal(R"([{"role":1}])", &ignored, "messages[0].role"), HasSubstr("a string"));
  EXPECT_THAT(Refusal(R"([{"content":1}])", &ignored, "messages[0].content"),
              HasSubstr("must be a string or an array of text parts"));
  EXPECT_THAT(Refusal(R"([{"content":["a"]}])", &ignored, "messages[0].content[0]"),
              HasSubstr("must be an object"));
}

}  // namespace
}  // namespace baton
