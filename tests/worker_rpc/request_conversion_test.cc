#include "worker_rpc/request_conversion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "common/choices.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <typename Ids>
void Fill(Ids* ids, int32_t first, int32_t count) {
  for (int32_t i = 0; i < count; ++i) ids->Add(first + i);
}

TEST(RequestConversion, APromptMustLeaveRoomInTheContextWithWhatWasGenerated) {
  EXPECT_TRUE(CheckPromptSize(99, 0, 100).ok());
  EXPECT_TRUE(CheckPromptSize(60, 40, 100).ok()) << "the answer is complete";
  EXPECT_FALSE(CheckPromptSize(0, 101, 100).ok());
  EXPECT_THAT(std::string(CheckPromptSize(100, 0, 100).message()), HasSubstr("100"));
  EXPECT_THAT(std::string(CheckPromptSize(60, 41, 100).message()),
              HasSubstr("a prompt of 60 tokens and 41 generated tokens exceed the context of 100"));
  EXPECT_FALSE(CheckPromptSize(int64_t{1} << 40, int64_t{1} << 40, 100).ok());
}

TEST(RequestConversion, EveryPartOfARequestIsChecked) {
  v1::DecodeRequest wire;
  Fill(wire.mutable_prompt_token_ids(), 0, 60);
  EXPECT_TRUE(CheckSize(wire, 100).ok());
  Fill(wire.add_generated()->mutable_token_ids(), 0, 40);
  EXPECT_TRUE(CheckSize(wire, 100).ok());
  Fill(wire.add_generated()->mutable_token_ids(), 0, 41);
  EXPECT_EQ(CheckSize(wire, 100).code(), absl::StatusCode::kInvalidArgument);
  wire.clear_generated();
  for (int i = 0; i <= kMaxChoices; ++i) wire.add_generated();
  EXPECT_THAT(std::string(CheckSize(wire, 100).message()), HasSubstr("generated has"));
}

TEST(RequestConversion, ADecodeRequestArrivesWhole) {
  v1::DecodeRequest wire;
  wire.set_request_id("r");
  Fill(wire.mutable_prompt_token_ids(), 7, 3);
  wire.set_n(2);
  v1::GeneratedPart* part = wire.add_generated();
  Fill(part->mutable_token_ids(), 20, 2);
  part->set_logits_hash(9);
  wire.add_generated()->set_finished(true);
  wire.set_cache_namespace(11);
  wire.set_cache_namespace_high(12);
  wire.set_priority(-3);
  wire.set_remote_prefill(true);
  wire.set_timeout_ms(500);
  SamplingParams sampling;
  sampling.seed = 42;
  const absl::StatusOr<GenerateRequest> converted =
      GenerateRequestFromWire(std::move(wire), sampling);
  ASSERT_TRUE(converted.ok()) << converted.status();
  const GenerateRequest& request = *converted;
  EXPECT_EQ(request.request_id, "r");
  EXPECT_THAT(request.prompt, ElementsAre(7, 8, 9));
  EXPECT_EQ(request.n, 2);
  ASSERT_EQ(request.generated.size(), 2u);
  EXPECT_THAT(request.generated[0].tokens, ElementsAre(20, 21));
  EXPECT_EQ(request.generated[0].logits_hash, 9u);
  EXPECT_FALSE(request.generated[0].finished);
  EXPECT_TRUE(request.generated[1].finished);
  EXPECT_EQ(request.cache_namespace, CacheNamespace(11, 12));
  EXPECT_EQ(request.priority, -3);
  EXPECT_TRUE(request.remote_prefill);
  EXPECT_EQ(request.timeout_ms, 500);
  EXPECT_EQ(request.sampling.seed, sampling.seed);
  EXPECT_FALSE(request.chunked);
  EXPECT_EQ(GenerateRequestFromWire({}, {})->n, 1) << "older routers leave n out";
}

v1::TransferTicket Ticket() {
  v1::TransferTicket ticket;
  ticket.set_transfer_id(5);
  ticket.set_receiver_epoch(6);
  ticket.set_address("tcp:127.0.0.1:1");
  ticket.set_first_block(2);
  ticket.set_block_count(3);
  ticket.set_block_size(16);
  ticket.add_window_first_blocks(4);
  ticket.add_window_first_blocks(3);
  ticket.set_timeout_ms(1000);
  return ticket;
}

v1::DecodeRequest ChunkedRequest() {
  v1::DecodeRequest wire;
  wire.set_request_id("r");
  Fill(wire.mutable_chunked()->mutable_system()->mutable_ids(), 1, 2);
  for (int32_t i = 0; i < 5; ++i) Fill(wire.mutable_chunked()->add_chunks()->mutable_ids(), 9, 30);
  Fill(wire.mutable_chunked()->mutable_question()->mutable_ids(), 5, 1);
  return wire;
}

TEST(RequestConversion, AChunkedPromptArrivesWhole) {
  v1::DecodeRequest wire = ChunkedRequest();
  const absl::StatusOr<GenerateRequest> request = GenerateRequestFromWire(std::move(wire), {});
  ASSERT_TRUE(request.ok()) << request.status();
  ASSERT_TRUE(request->chunked);
  EXPECT_THAT(request->chunked->system, ElementsAre(1, 2));
  EXPECT_EQ(request->chunked->chunks.size(), 5u);
  EXPECT_THAT(request->chunked->question, ElementsAre(5));
  EXPECT_EQ(request->prompt, FlatTokens(*request->chunked));
  EXPECT_EQ(request->request_id, "r");

  wire = ChunkedRequest();
  wire.add_prompt_token_ids(1);
  EXPECT_EQ(GenerateRequestFromWire(std::move(wire), {}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(RequestConversion, TheTokensOfAChunkedPromptMayExceedTheContextButNotTheAnswers) {
  v1::DecodeRequest wire = ChunkedRequest();  // 153 tokens
  EXPECT_TRUE(CheckSize(wire, 100).ok());
  Fill(wire.add_generated()->mutable_token_ids(), 0, 101);
  EXPECT_EQ(CheckSize(wire, 100).code(), absl::StatusCode::kInvalidArgument);
  wire.clear_generated();
  for (int i = 0; i <= kMaxChoices; ++i) wire.add_generated();
  EXPECT_EQ(CheckSize(wire, 100).code(), absl::StatusCode::kInvalidArgument);
}

TEST(RequestConversion, ATicketRoundTrips) {
  const v1::TransferTicket wire = Ticket();
  const TransferTicket ticket = *TicketFromWire(wire);
  EXPECT_EQ(ticket.transfer_id, 5u);
  EXPECT_EQ(ticket.receiver_epoch, Epoch(6));
  EXPECT_EQ(ticket.first_block, 2);
  EXPECT_EQ(ticket.block_count, 3);
  EXPECT_THAT(ticket.window_first_blocks, ElementsAre(4, 3));
  EXPECT_EQ(TicketToWire(ticket).SerializeAsString(), wire.SerializeAsString());
}

TEST(RequestConversion, PrefillsPullsAndSendsArriveWhole) {
  v1::PrefillRequest prefill;
  prefill.set_request_id("r");
  Fill(prefill.mutable_prompt_token_ids(), 1, 2);
  Fill(prefill.mutable_generated()->mutable_token_ids(), 8, 1);
  prefill.set_priority(4);
  *prefill.mutable_ticket() = Ticket();
  const PrefillRequest asked = *PrefillRequestFromWire(std::move(prefill), {});
  EXPECT_THAT(asked.prompt, ElementsAre(1, 2));
  EXPECT_THAT(asked.generated.tokens, ElementsAre(8));
  EXPECT_EQ(asked.priority, 4);
  EXPECT_EQ(asked.ticket.transfer_id, 5u);

  v1::PullPrefixRequest pull;
  Fill(pull.mutable_token_ids(), 1, 3);
  pull.set_cache_namespace(2);
  pull.set_timeout_ms(70);
  pull.set_priority(-1);
  const PullRequest pulled = *PullRequestFromWire(pull);
  EXPECT_THAT(pulled.tokens, ElementsAre(1, 2, 3));
  EXPECT_EQ(pulled.cache_namespace, CacheNamespace(2));
  EXPECT_EQ(pulled.timeout_ms, 70);
  EXPECT_EQ(pulled.priority, -1);

  v1::SendPrefixRequest send;
  Fill(send.mutable_token_ids(), 1, 3);
  *send.mutable_ticket()->mutable_ticket() = Ticket();
  EXPECT_EQ(SendPrefixRequestFromWire(send)->ticket.block_count, 3);
}

TEST(RequestConversion, ATicketOfAChunkedPromptRoundTrips) {
  TransferTicket ticket;
  ticket.transfer_id = 5;
  ticket.piece_tokens = 512;
  ticket.parts = {{.part = 0, .transfer_id = 7, .first_block = 1, .block_count = 2},
                  {.part = 3, .transfer_id = UINT64_MAX, .first_block = 0, .block_count = 9}};
  const TransferTicket back = *TicketFromWire(TicketToWire(ticket));
  EXPECT_EQ(back.piece_tokens, 512);
  EXPECT_EQ(back.parts, ticket.parts);

  v1::TransferTicket large;
  for (int64_t i = 0; i <= kMaxTicketParts; ++i) large.add_parts();
  const absl::Status refused = TicketFromWire(large).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("8193"));
}

TEST(RequestConversion, PrefillsPullsAndSendsCarryChunkedPrompts) {
  const v1::ChunkedPrompt prompt = ChunkedRequest().chunked();
  v1::PrefillRequest prefill;
  *prefill.mutable_chunked() = prompt;
  *prefill.mutable_ticket() = Ticket();
  EXPECT_TRUE(CheckSize(prefill, 100).ok()) << "153 tokens";
  const absl::StatusOr<PrefillRequest> asked =
      PrefillRequestFromWire(v1::PrefillRequest(prefill), {});
  ASSERT_TRUE(asked.ok()) << asked.status();
  EXPECT_EQ(asked->chunked->chunks.size(), 5u);
  EXPECT_EQ(asked->prompt, FlatTokens(*asked->chunked));
  Fill(prefill.mutable_generated()->mutable_token_ids(), 0, 101);
  EXPECT_FALSE(CheckSize(prefill, 100).ok());

  v1::PullPrefixRequest pull;
  *pull.mutable_chunked() = prompt;
  pull.set_cache_namespace(2);
  EXPECT_EQ(PullRequestFromWire(pull)->chunked->system.size(), 2u);
  EXPECT_EQ(PullRequestFromWire(pull)->cache_namespace, CacheNamespace(2));
  v1::SendPrefixRequest send;
  *send.mutable_chunked() = prompt;
  *send.mutable_ticket()->mutable_ticket() = Ticket();
  EXPECT_EQ(SendPrefixRequestFromWire(send)->chunked->question.size(), 1u);
  EXPECT_EQ(SendPrefixRequestFromWire(send)->ticket.transfer_id, 5u);

  // A request for both, and one that is too large, are refused.
  pull.add_token_ids(1);
  send.add_token_ids(1);
  prefill.add_prompt_token_ids(1);
  EXPECT_EQ(PullRequestFromWire(pull).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(SendPrefixRequestFromWire(send).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(PrefillRequestFromWire(std::move(prefill), {}).status().code(),
            absl::StatusCode::kInvalidArgument);
  send.clear_token_ids();
  for (int64_t i = 0; i <= kMaxTicketParts; ++i) {
    send.mutable_ticket()->mutable_ticket()->add_parts();
  }
  EXPECT_EQ(SendPrefixRequestFromWire(send).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(RequestConversion, TheOwnerOfTheCacheArrivesAndItsShareIsChecked) {
  const auto check = [](auto convert, auto wire) {
    EXPECT_EQ(convert(wire)->cache_owner, CacheOwner()) << "older routers leave it out";
    wire.mutable_cache_owner()->set_id(7);
    wire.mutable_cache_owner()->set_share(0.25);
    EXPECT_EQ(convert(wire)->cache_owner, (CacheOwner{.id = 7, .share = 0.25}));
    for (const double share : {-0.01, 1.01, std::nan(""), HUGE_VAL, -HUGE_VAL}) {
      wire.mutable_cache_owner()->set_share(share);
      const absl::Status status = convert(wire).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << share;
      EXPECT_THAT(std::string(status.message()), HasSubstr("cache_owner.share"));
    }
  };
  check([](v1::DecodeRequest wire) { return GenerateRequestFromWire(std::move(wire), {}); },
        v1::DecodeRequest());
  check([](v1::PrefillRequest wire) { return PrefillRequestFromWire(std::move(wire), {}); },
        v1::PrefillRequest());
  check([](const v1::PullPrefixRequest& wire) { return PullRequestFromWire(wire); },
        v1::PullPrefixRequest());
}

}  // namespace
}  // namespace baton
