#include "requests/request_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "common/error_details.h"
#include "common/str_cat.h"

namespace baton {
namespace {

using Json = nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::StatusOr<ClientRequest> Read(const std::string& text, RequestStyle style) {
  const Json json = Json::parse(text);
  const JsonPlace place(text, kNotALine);
  ClientRequest request;
  for (const auto& [name, value] : json.items()) {
    const absl::StatusOr<bool> known =
        ReadRequestField(place.Member(name), name, value, style, nullptr, request);
    if (!known.ok()) return known.status();
    EXPECT_TRUE(*known) << name;
  }
  const absl::Status finished = FinishRequest(place, json, style, request);
  if (!finished.ok()) return finished;
  return request;
}

std::string Refusal(const std::string& text, RequestStyle style, const std::string& param) {
  const absl::Status status = Read(text, style).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
  EXPECT_EQ(ErrorParam(status), param) << text;
  return std::string(status.message());
}

TEST(RequestFields, APromptOfTokenIdsNeedsTheCompletionsStyle) {
  EXPECT_THAT(*Read(R"({"prompt":[1,2]})", RequestStyle::kCompletion)->prompt_token_ids,
              ElementsAre(1, 2));
  EXPECT_EQ(Refusal(R"({"prompt":[1,2]})", RequestStyle::kJob, "prompt"),
            "\"prompt\" must be a string");
}

TEST(RequestFields, EachStyleHasItsInputs) {
  EXPECT_TRUE(Read(R"({"messages":[]})", RequestStyle::kChat).ok());
  EXPECT_TRUE(Read(R"({"messages":[]})", RequestStyle::kJob).ok());
  EXPECT_EQ(Refusal(R"({"prompt":"a"})", RequestStyle::kChat, "messages"),
            "a body for /v1/chat/completions must have \"messages\"");
  EXPECT_EQ(Refusal(R"({"messages":[]})", RequestStyle::kCompletion, "messages"),
            "a body for /v1/completions has no \"messages\"");
  EXPECT_THAT(Refusal("{}", RequestStyle::kCompletion, ""), HasSubstr("a body has one of"));
  EXPECT_THAT(Refusal(R"({"prompt":"a","question":"b"})", RequestStyle::kJob, ""),
              HasSubstr("a job has one of \"prompt\", \"prompt_token_ids\", \"messages\" and "
                        "\"question\"; this one has 2"));
}

TEST(RequestFields, AFaultOfTheCheckNamesTheFieldThatTheBodyHas) {
  const RequestStyle style = RequestStyle::kCompletion;
  EXPECT_EQ(Refusal(R"({"prompt":"a","top_p":2})", style, "top_p"),
            "top_p is 2; (0, 1] is allowed");
  EXPECT_EQ(Refusal(R"({"prompt":"a","max_completion_tokens":0})", style, "max_completion_tokens"),
            "max_completion_tokens is 0; at least 1 is allowed");
  EXPECT_EQ(Refusal(R"({"prompt":"a","logprobs":true,"top_logprobs":21})", style, "top_logprobs"),
            "top_logprobs is 21; [0, 20] is allowed");
  EXPECT_EQ(Refusal(R"({"prompt":"a","stop":["b",""]})", style, "stop"),
            "stop[1] has 0 bytes; [1, 256] are allowed");
}

// The check cannot name a number that its type does not hold.
TEST(RequestFields, ANumberBeyond32BitsIsRefusedWithTheRangeOfItsField) {
  const std::map<std::string, std::string> ranges = {{"n", "[1, 16]"},
                                                     {"priority", "[-100, 100]"},
                                                     {"max_tokens", "[1, 2147483647]"},
                                                     {"max_completion_tokens", "[1, 2147483647]"},
                                                     {"min_tokens", "[0, 2147483647]"},
                                                     {"top_k", "[0, 2147483647]"},
                                                     {"logprobs", "[0, 20]"}};
  for (const auto& [name, range] : ranges) {
    EXPECT_EQ(Refusal(R"({"prompt":"a",")" + name + R"(":3000000000})", RequestStyle::kJob, name),
              "\"" + name + "\" is 3000000000; " + range + " is allowed");
  }
}

TEST(RequestFields, ANegativeSeedIsTheNumberWithTheSameBits) {
  ClientRequest request;
  const JsonPlace place("{}", kNotALine);
  const auto seed_of = [&](const Json& value) {
    EXPECT_TRUE(*ReadRequestField(place.Member("seed"), "seed", value, RequestStyle::kJob, nullptr,
                                  request));
    return *request.sampling.seed;
  };
  EXPECT_EQ(seed_of(-1), UINT64_MAX);
  EXPECT_EQ(seed_of(INT64_MIN), uint64_t{1} << 63);
  EXPECT_EQ(seed_of(UINT64_MAX), UINT64_MAX);
  EXPECT_EQ(seed_of(7.0), 7u);
  for (const char* seed : {"18446744073709551616", "-9223372036854775809", "1e18"}) {
    EXPECT_THAT(Refusal(StrCat(R"({"prompt":"a","seed":)", seed, "}"), RequestStyle::kJob, "seed"),
                HasSubstr("; [-2^63, 2^64-1] is allowed"));
  }
}

TEST(RequestFields, AnUnknownNameIsLeftToTheCaller) {
  ClientRequest request;
  const JsonPlace place("{}", kNotALine);
  EXPECT_FALSE(*ReadRequestField(place.Member("x"), "x", 1, RequestStyle::kJob, nullptr, request));
}

TEST(RequestFields, NullLeavesEveryFieldAtItsDefault) {
  ForEachRequestField([](const char* name, const char* help) {
    EXPECT_NE(std::string(help), "");
    ClientRequest request;
    const JsonPlace place("{}", kNotALine);
    EXPECT_TRUE(
        *ReadRequestField(place.Member(name), name, nullptr, RequestStyle::kJob, nullptr, request))
        << name;
    EXPECT_EQ(InputsOf(request), 0) << name;
  });
}

// A number or an object is wrong for every field that has a type of its own.
TEST(RequestFields, EveryFieldRefusesAWrongTypeByName) {
  const std::set<std::string> read_together = {"max_tokens", "max_completion_tokens", "logprobs",
                                               "top_logprobs"};
  ForEachRequestField([&](const char* name, const char*) {
    const Json wrong = std::string(name) == "logit_bias" ? Json::array() : Json::object();
    const Json object = {{name, wrong}, {"prompt", "a"}, {"logprobs", true}};
    const JsonPlace place("{}", kNotALine);
    ClientRequest request;
    absl::Status status = ReadRequestField(place.Member(name), name, wrong,
                                           RequestStyle::kCompletion, nullptr, request)
                              .status();
    if (read_together.contains(name)) {
      EXPECT_TRUE(status.ok()) << name;
      status = FinishRequest(
          place, {{name, wrong}, {std::string(name) == "logprobs" ? "n" : "logprobs", true}},
          RequestStyle::kCompletion, request);
    }
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_EQ(ErrorParam(status), name);
    EXPECT_THAT(std::string(status.message()), HasSubstr(std::string(name) + "\" must be"));
  });
}

TEST(RequestFields, AMessageBeginsWithAFieldOrNot) {
  EXPECT_EQ(FieldOfMessage("stop[1] has 0 bytes"), "stop");
  EXPECT_EQ(FieldOfMessage("logit_bias of token 7 is -101"), "logit_bias");
  EXPECT_EQ(FieldOfMessage("the prompt has no tokens"), "");
  EXPECT_EQ(FieldOfMessage(""), "");
}

}  // namespace
}  // namespace baton
