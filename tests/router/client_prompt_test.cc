#include "router/client_prompt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/router/byte_model.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMaxPromptBytes = 100;
constexpr int32_t kContextLength = 64;

absl::StatusOr<EncodedPrompt> Encoded(const ClientRequest& request,
                                      std::string_view separator = "") {
  const auto model = *ServedModel::Create(ByteModel(kContextLength));
  return EncodePrompt(*model, LimitsFor(*model, kMaxPromptBytes), separator, request);
}

std::string Refusal(const ClientRequest& request) {
  const absl::Status status = Encoded(request).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

ClientRequest InParts(const ChunkedText& parts) {
  ClientRequest request;
  request.parts = parts;
  return request;
}

std::vector<TokenId> Bytes(std::string_view text) { return {text.begin(), text.end()}; }

TEST(ClientPrompt, TextIsTokenisedAndIdsAreTakenAsTheyAre) {
  ClientRequest request;
  request.prompt = "abc";
  EXPECT_EQ(Encoded(request)->tokens, Bytes("abc"));
  ClientRequest ids;
  ids.prompt_token_ids = {7, 8};
  EXPECT_EQ(Encoded(ids)->tokens, (std::vector<TokenId>{7, 8}));
}

TEST(ClientPrompt, APromptThatTheModelCannotHaveIsRefused) {
  ClientRequest request;
  EXPECT_THAT(Refusal(request), HasSubstr("one of prompt, prompt_token_ids, messages and parts"));
  request.prompt = "";
  EXPECT_EQ(Refusal(request), "the prompt has no tokens");
  request.prompt = std::string(64, 'x');
  EXPECT_THAT(Refusal(request), HasSubstr("the prompt has 64 tokens; the context of 64"));
  ClientRequest ids;
  ids.prompt_token_ids = {7, 256};
  EXPECT_EQ(Refusal(ids), "prompt_token_ids[1] is 256; [0, 255] is allowed");
}

// A router checks requests also before it knows its model.
TEST(ClientPrompt, TheModelsLimitsAreCheckedAgain) {
  ClientRequest request;
  request.prompt = "a";
  request.sampling.stop_token_ids = {256};
  EXPECT_TRUE(CheckRequest(request, {.max_prompt_bytes = kMaxPromptBytes}).ok());
  EXPECT_EQ(Refusal(request), "stop_token_ids[0] is 256; [0, 255] is allowed");
}

TEST(ClientPrompt, PartsBecomeAChunkedPrompt) {
  ClientRequest request =
      InParts({.system = "S", .chunks = {"AB", std::vector<TokenId>{7}}, .question = "Q"});
  request.chunk_options.scope = ChunkScope::kAlone;
  const absl::StatusOr<EncodedPrompt> prompt = Encoded(request);
  ASSERT_TRUE(prompt.ok()) << prompt.status();
  EXPECT_EQ(*prompt->chunked, (ChunkedPrompt{.options = {.scope = ChunkScope::kAlone},
                                             .system = Bytes("S"),
                                             .chunks = {Bytes("AB"), {7}},
                                             .question = Bytes("Q")}));
}

TEST(ClientPrompt, ARequestsSeparatorReplacesTheRouters) {
  ClientRequest request;
  request.prompt = "S##A|Q";
  EXPECT_FALSE(Encoded(request)->chunked.has_value());
  EXPECT_EQ(Encoded(request, "##")->chunked->question, Bytes("A|Q"));
  request.chunk_separator = "|";
  EXPECT_EQ(Encoded(request, "##")->chunked->question, Bytes("Q"));
  request.chunk_separator = "";
  EXPECT_FALSE(Encoded(request, "##")->chunked.has_value());
}

TEST(ClientPrompt, PartsGivenAsSuchAreNotSplit) {
  const absl::StatusOr<EncodedPrompt> prompt =
      Encoded(InParts({.system = "S#", .chunks = {"A#B"}, .question = "Q#"}), "#");
  ASSERT_TRUE(prompt.ok()) << prompt.status();
  EXPECT_EQ(prompt->chunked->chunks, (std::vector<std::vector<TokenId>>{Bytes("A#B")}));
}

TEST(ClientPrompt, BadPartsAreRefusedByPartValueAndLimit) {
  const std::string fifty(50, 'x');
  EXPECT_THAT(Refusal(InParts({.system = "S", .chunks = {"A", ""}, .question = "Q"})),
              HasSubstr("part 2 (chunks[1]) has 0 bytes"));
  EXPECT_THAT(
      Refusal(InParts({.system = "S", .chunks = {std::vector<TokenId>{256}}, .question = "Q"})),
      HasSubstr("chunks[0][0] is 256; [0, 255] is allowed"));
  ClientRequest request = InParts({.system = "S", .chunks = {fifty, "y"}, .question = "Q"});
  request.parts->chunks[1] = std::vector<TokenId>(50, 'y');
  EXPECT_TRUE(Encoded(request).ok()) << "overlapping chunks share positions";
  request.chunk_options.positions = ChunkPositions::kSequential;
  EXPECT_THAT(Refusal(request),
              HasSubstr("part 2 (chunks[1]) reaches position 100; the context of 64 tokens ends at "
                        "position 63"));
}

TEST(ClientPrompt, ATextWithASeparatorMayExceedTheContext) {
  ClientRequest request;
  request.prompt = std::string(45, 'x') + "#" + std::string(45, 'y') + "#Q";
  EXPECT_THAT(Refusal(request), HasSubstr("cannot hold it"));
  request.chunk_separator = "#";
  EXPECT_THAT(Refusal(request), HasSubstr("part 1 (chunks[0]) reaches position 89"));
  request.prompt = "#" + std::string(45, 'x') + "#" + std::string(45, 'y') + "#Q";
  EXPECT_TRUE(Encoded(request).ok());
}

}  // namespace
}  // namespace baton
