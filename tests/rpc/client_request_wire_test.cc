#include "rpc/client_request_wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "rpc/prompt_chunks_wire.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kMaxPromptBytes = 100;
constexpr RequestLimits kLimits{.max_prompt_bytes = kMaxPromptBytes};

std::string Refusal(const v1::GenerateRequest& wire) {
  const absl::Status status = ClientRequestFromWire(wire, kLimits).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(ClientRequestWire, EveryFieldSurvivesTheWire) {
  ClientRequest request;
  request.request_id = "r";
  request.messages = {{.role = "user", .content = "hi", .name = std::nullopt, .chunks = {"C"}}};
  request.add_generation_prompt = false;
  request.chunk_options = {.positions = ChunkPositions::kSequential,
                           .scope = ChunkScope::kAlone,
                           .repair = {.kind = ChunkRepair::Kind::kFirst, .first_tokens = 3}};
  request.chunk_separator = "";
  request.n = 3;
  request.sampling.temperature = 0.5f;
  request.sampling.stop = {"x"};
  request.sampling.logit_bias = {{7, 1.0f}};
  request.sampling.seed = 11;
  request.sampling.logprobs = 2;
  request.tenant = "t";
  request.cache_salt = "s";
  request.session_id = "u";
  request.trace_parent = "00-t";
  request.priority = -4;
  request.return_prompt_token_ids = true;
  const absl::StatusOr<ClientRequest> read =
      ClientRequestFromWire(ClientRequestToWire(request), kLimits);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->request_id, "r");
  ASSERT_EQ(read->messages->size(), 1u);
  EXPECT_EQ((*read->messages)[0].role, "user");
  EXPECT_EQ((*read->messages)[0].content, "hi");
  EXPECT_EQ((*read->messages)[0].chunks, (std::vector<PromptPart>{"C"}));
  EXPECT_FALSE(read->add_generation_prompt);
  EXPECT_EQ(read->chunk_options, request.chunk_options);
  EXPECT_EQ(read->chunk_separator, "");
  EXPECT_EQ(read->n, 3);
  EXPECT_EQ(read->sampling.temperature, 0.5f);
  EXPECT_THAT(read->sampling.stop, ElementsAre("x"));
  EXPECT_EQ(read->sampling.logit_bias.at(7), 1.0f);
  EXPECT_EQ(read->sampling.seed, 11u);
  EXPECT_EQ(read->sampling.logprobs, 2);
  EXPECT_EQ(read->tenant, "t");
  EXPECT_EQ(read->cache_salt, "s");
  EXPECT_EQ(read->session_id, "u");
  EXPECT_EQ(read->trace_parent, "00-t");
  EXPECT_EQ(read->priority, -4);
  EXPECT_TRUE(read->return_prompt_token_ids);
}

TEST(ClientRequestWire, EachInputSurvivesTheWire) {
  ClientRequest text;
  text.prompt = "abc";
  EXPECT_EQ(ClientRequestFromWire(ClientRequestToWire(text), kLimits)->prompt, "abc");
  ClientRequest ids;
  ids.prompt_token_ids = {1, 2};
  EXPECT_THAT(*ClientRequestFromWire(ClientRequestToWire(ids), kLimits)->prompt_token_ids,
              ElementsAre(1, 2));
  ClientRequest parts;
  parts.parts = ChunkedText{.system = "S", .chunks = {"A"}, .question = std::vector<TokenId>{5}};
  const absl::StatusOr<ClientRequest> read =
      ClientRequestFromWire(ClientRequestToWire(parts), kLimits);
  EXPECT_EQ(read->parts->system, PromptPart("S"));
  EXPECT_EQ(read->parts->question, PromptPart(std::vector<TokenId>{5}));
}

TEST(ClientRequestWire, AbsentFieldsHaveTheirDefaults) {
  v1::GenerateRequest wire;
  EXPECT_EQ(InputsOf(*ClientRequestFromWire(wire, kLimits)), 0);
  wire.set_prompt("a");
  const absl::StatusOr<ClientRequest> read = ClientRequestFromWire(wire, kLimits);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->n, 1);
  EXPECT_EQ(read->sampling.temperature, 1);
  EXPECT_FALSE(read->sampling.max_tokens.has_value());
  EXPECT_FALSE(read->chunk_separator.has_value());
  EXPECT_FALSE(read->return_prompt_token_ids);
}

TEST(ClientRequestWire, AWrongNumberIsKeptForTheCheck) {
  v1::GenerateRequest wire;
  wire.set_prompt("a");
  wire.set_n(0);
  const absl::StatusOr<ClientRequest> read = ClientRequestFromWire(wire, kLimits);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(CheckRequest(*read, kLimits).message(), "n is 0; [1, 16] is allowed");
}

// An empty message takes two bytes on the wire and a hundred in memory.
TEST(ClientRequestWire, LargeInputsAreRefusedBeforeTheyAreCopied) {
  v1::GenerateRequest text;
  text.set_prompt(std::string(101, 'x'));
  EXPECT_THAT(Refusal(text), HasSubstr("the prompt has 101 bytes; at most 100"));

  v1::GenerateRequest ids;
  ids.mutable_prompt_token_ids()->mutable_ids()->Resize((1 << 20) + 1, 7);
  EXPECT_THAT(Refusal(ids), HasSubstr("prompt_token_ids has 1048577 entries; at most 1048576"));

  v1::GenerateRequest messages;
  for (int i = 0; i < 4096; ++i) messages.mutable_messages()->add_messages();
  EXPECT_TRUE(ClientRequestFromWire(messages, kLimits).ok());
  messages.mutable_messages()->add_messages();
  EXPECT_THAT(Refusal(messages), HasSubstr("messages has 4097 entries; at most 4096"));

  v1::GenerateRequest contents;
  v1::ChatMessage* const message = contents.mutable_messages()->add_messages();
  message->set_role("user");
  message->set_content(std::string(97, 'x'));
  EXPECT_THAT(Refusal(contents), HasSubstr("the prompt has 101 bytes; at most 100"));
  message->mutable_content()->pop_back();
  EXPECT_TRUE(ClientRequestFromWire(contents, kLimits).ok());
  *message->add_chunks() = PartToWire(std::string(1, 'x'));
  EXPECT_THAT(Refusal(contents), HasSubstr("the prompt has 101 bytes; at most 100"));
}

TEST(ClientRequestWire, LargePartsAreRefusedBeforeTheyAreCopied) {
  v1::GenerateRequest chunks;
  chunks.mutable_parts()->mutable_question()->set_text("Q");
  for (int i = 0; i < 500; ++i) chunks.mutable_parts()->add_chunks();
  EXPECT_TRUE(ClientRequestFromWire(chunks, kLimits).ok());
  chunks.mutable_parts()->add_chunks();
  EXPECT_THAT(Refusal(chunks), HasSubstr("chunks has 501 entries; at most 500"));

  v1::GenerateRequest bytes;
  *bytes.mutable_parts() = PartsToWire(
      {.system = std::string(50, 'x'), .chunks = {std::string(50, 'x')}, .question = "Q"});
  EXPECT_THAT(Refusal(bytes), HasSubstr("the prompt has 101 bytes; at most 100"));

  v1::GenerateRequest ids;
  ids.mutable_parts()->mutable_system()->mutable_token_ids()->mutable_ids()->Resize((1 << 20) + 1,
                                                                                    7);
  EXPECT_THAT(Refusal(ids), HasSubstr("the prompt has 1048577 token ids; at most 1048576"));
}

TEST(ClientRequestWire, WrongNamesOfOptionsAreRefused) {
  v1::GenerateRequest wire;
  wire.set_prompt("a");
  wire.set_chunk_positions("x");
  EXPECT_THAT(Refusal(wire), HasSubstr("chunk_positions is \"x\""));
}

TEST(ClientRequestWire, TextThatIsNotUtf8IsRefusedByField) {
  const auto refusal = [](const ClientRequest& request) {
    return std::string(CheckUtf8(request).message());
  };
  ClientRequest request;
  request.prompt = "a\xff";
  EXPECT_EQ(refusal(request), "prompt is not valid UTF-8 at byte 1 of 2");
  request.prompt = "a";
  request.sampling.stop = {"\xc3"};
  EXPECT_THAT(refusal(request), HasSubstr("stop is not valid UTF-8"));
  ClientRequest messages;
  messages.messages = {
      {.role = "user", .content = "\xff", .name = std::nullopt, .chunks = {"C", "\xff"}}};
  EXPECT_THAT(refusal(messages), HasSubstr("messages[0].content is not"));
  (*messages.messages)[0].content = "";
  EXPECT_THAT(refusal(messages), HasSubstr("messages[0].chunks[1] is not"));
}

}  // namespace
}  // namespace baton
