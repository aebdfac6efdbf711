#include "openai/body_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "common/error_details.h"
#include "requests/request_fields.h"

namespace baton {
namespace {

using Json = nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr OpenAiEndpoint kCompletions = OpenAiEndpoint::kCompletions;

absl::Status Read(const std::string& name, const Json& value, BodyFields& fields,
                  OpenAiEndpoint endpoint = OpenAiEndpoint::kChatCompletions) {
  const JsonPlace root("{}", kNotALine);
  IgnoredFields ignored;
  const absl::StatusOr<bool> known =
      ReadBodyField(root.Member(name), name, value, endpoint, ignored, fields);
  EXPECT_TRUE(!known.ok() || *known) << name;
  return known.status();
}

std::string Refusal(const std::string& name, const Json& value,
                    OpenAiEndpoint endpoint = OpenAiEndpoint::kChatCompletions) {
  BodyFields fields;
  const absl::Status status = Read(name, value, fields, endpoint);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name << " " << value;
  EXPECT_TRUE(ErrorParam(status).starts_with(name)) << ErrorParam(status);
  return std::string(status.message());
}

TEST(BodyFields, HonouredFieldsAreRead) {
  BodyFields fields;
  EXPECT_TRUE(Read("model", "m", fields).ok());
  EXPECT_TRUE(Read("stream", true, fields).ok());
  EXPECT_TRUE(
      Read("stream_options", {{"include_usage", true}, {"continuous_usage_stats", true}}, fields)
          .ok());
  EXPECT_TRUE(Read("echo", true, fields, kCompletions).ok());
  EXPECT_TRUE(Read("prompt_cache_key", "k", fields).ok());
  EXPECT_TRUE(Read("return_token_ids", true, fields).ok());
  EXPECT_TRUE(Read("return_ledger", true, fields).ok());
  EXPECT_EQ(fields.model, "m");
  EXPECT_TRUE(fields.stream && fields.include_usage && fields.continuous_usage_stats);
  EXPECT_TRUE(fields.echo && fields.return_token_ids && fields.return_ledger);
  EXPECT_EQ(fields.prompt_cache_key, "k");
}

TEST(BodyFields, WrongTypesAreRefused) {
  EXPECT_EQ(Refusal("model", 1), "\"model\" must be a string");
  EXPECT_EQ(Refusal("stream", "yes"), "\"stream\" must be true or false");
  EXPECT_EQ(Refusal("stream_options", true), "\"stream_options\" must be an object");
  EXPECT_EQ(Refusal("stream_options", {{"include_usage", 1}}),
            "\"stream_options.include_usage\" must be true or false");
  EXPECT_EQ(Refusal("prompt_cache_key", std::string(129, 'x')),
            "\"prompt_cache_key\" has 129 bytes; at most 128 are allowed");
}

TEST(BodyFields, WhatIsNotBuiltIsRefusedUnlessItAsksForNothing) {
  EXPECT_EQ(Refusal("tools", Json::array({Json::object()})),
            "\"tools\" is not supported; leave it out");
  EXPECT_THAT(Refusal("tool_choice", "required"), HasSubstr("only \"none\" and \"auto\""));
  EXPECT_THAT(Refusal("tool_choice", Json::object({{"type", "function"}})), HasSubstr("only"));
  EXPECT_EQ(Refusal("response_format", {{"type", "json_object"}}),
            "\"response_format.type\" is \"json_object\"; only \"text\" is supported");
  EXPECT_THAT(Refusal("response_format", Json::object()), HasSubstr("has no \"type\""));
  EXPECT_THAT(Refusal("response_format", "text"), HasSubstr("must be an object"));
  EXPECT_THAT(Refusal("modalities", {"text", "audio"}), HasSubstr("not supported"));
  EXPECT_THAT(Refusal("suffix", "x"), HasSubstr("not supported"));
  EXPECT_THAT(Refusal("suffix", 0), HasSubstr("not supported"));
  EXPECT_THAT(Refusal("use_beam_search", true), HasSubstr("not supported"));
  EXPECT_THAT(Refusal("echo", true), HasSubstr("is not supported in a conversation"));
  BodyFields fields;
  const std::pair<const char*, Json> nothing[] = {{"tools", Json::array()},
                                                  {"functions", Json::array()},
                                                  {"tool_choice", "auto"},
                                                  {"function_call", "none"},
                                                  {"suffix", ""},
                                                  {"modalities", {"text"}},
                                                  {"use_beam_search", false},
                                                  {"echo", false},
                                                  {"response_format", {{"type", "text"}}}};
  for (const auto& [name, value] : nothing) {
    EXPECT_TRUE(Read(name, value, fields).ok()) << name;
  }
}

TEST(BodyFields, NullAsksForNothingAndFieldsWithoutEffectTakeAnything) {
  ForEachBodyField([](const char* name, BodyFieldKind kind) {
    BodyFields fields;
    EXPECT_TRUE(Read(name, nullptr, fields).ok()) << name;
    if (kind != BodyFieldKind::kWithoutEffect) return;
    for (const Json& value : {Json(1), Json("x"), Json::array({1}), Json({{"a", 1}})}) {
      EXPECT_TRUE(Read(name, value, fields).ok()) << name;
    }
  });
}

TEST(BodyFields, AnUnknownStreamOptionIsNamed) {
  const JsonPlace root("{}", kNotALine);
  IgnoredFields ignored;
  BodyFields fields;
  EXPECT_TRUE(*ReadBodyField(root.Member("stream_options"), "stream_options",
                             {{"include_obfuscation", false}, {"x", 1}}, kCompletions, ignored,
                             fields));
  EXPECT_THAT(ignored.names(), ElementsAre("stream_options.x"));
  EXPECT_FALSE(*ReadBodyField(root.Member("y"), "y", 1, kCompletions, ignored, fields));
}

TEST(BodyFields, NoFieldIsDeclaredTwice) {
  std::set<std::string> names;
  ForEachRequestField(
      [&](const char* name, const char*) { EXPECT_TRUE(names.insert(name).second) << name; });
  ForEachBodyField(
      [&](const char* name, BodyFieldKind) { EXPECT_TRUE(names.insert(name).second) << name; });
}

TEST(BodyFields, TheDocumentNamesEveryField) {
  std::ifstream file(BATON_TESTDATA "/../../docs/OPENAI.md");
  ASSERT_TRUE(file.good());
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  ForEachRequestField([&](const char* name, const char*) {
    EXPECT_THAT(text, HasSubstr("`" + std::string(name) + "`"));
  });
  ForEachBodyField([&](const char* name, BodyFieldKind) {
    EXPECT_THAT(text, HasSubstr("`" + std::string(name) + "`"));
  });
}

}  // namespace
}  // namespace baton
