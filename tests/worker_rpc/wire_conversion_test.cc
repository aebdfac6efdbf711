#include "worker_rpc/wire_conversion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <typename Ids>
void Fill(Ids* ids, int32_t first, int32_t count) {
  for (int32_t i = 0; i < count; ++i) ids->Add(first + i);
}

TEST(WireConversion, TheStatusHasTheCacheOfChunks) {
  EngineStatus status;
  status.chunk_cache = {.budget_blocks = 1,
                        .used_blocks = 2,
                        .referenced_blocks = 3,
                        .entries = 4,
                        .max_entries = 5,
                        .lookups = 60,
                        .hits = 7,
                        .bypasses = 8,
                        .evictions = 9};
  const v1::ChunkCacheStatus wire = PoolToWire(status).chunk_cache();
  EXPECT_EQ(wire.budget_blocks(), 1);
  EXPECT_EQ(wire.used_blocks(), 2);
  EXPECT_EQ(wire.entries(), 4);
  EXPECT_EQ(wire.lookups(), 60);
  EXPECT_EQ(wire.hits(), 7);
  EXPECT_EQ(wire.misses(), 53);
  EXPECT_EQ(wire.bypasses(), 8);
  EXPECT_EQ(wire.evictions(), 9);
}

TEST(WireConversion, TheLedgerHasTheFiguresOfChunks) {
  FinishInfo info;
  info.ledger.chunk = {.chunks = 1,
                       .hits = 2,
                       .repaired_tokens = 3,
                       .pulled_bytes = 4,
                       .lookup_us = 5,
                       .compute_us = 6,
                       .place_us = 7,
                       .repair_us = 8,
                       .wake_us = 9};
  const v1::Ledger wire = FinishedToWire(info).ledger();
  EXPECT_EQ(wire.chunks(), 1);
  EXPECT_EQ(wire.chunk_hits(), 2);
  EXPECT_EQ(wire.chunk_repaired_tokens(), 3);
  EXPECT_EQ(wire.chunk_pulled_bytes(), 4);
  EXPECT_EQ(wire.chunk_lookup_us(), 5);
  EXPECT_EQ(wire.chunk_compute_us(), 6);
  EXPECT_EQ(wire.chunk_place_us(), 7);
  EXPECT_EQ(wire.chunk_repair_us(), 8);
  EXPECT_EQ(wire.chunk_wake_us(), 9);
}

TEST(WireConversion, APromptMustLeaveRoomInTheContextWithWhatWasGenerated) {
  EXPECT_TRUE(CheckPromptSize(99, 0, 100).ok());
  EXPECT_TRUE(CheckPromptSize(60, 40, 100).ok()) << "the answer is complete";
  EXPECT_FALSE(CheckPromptSize(0, 101, 100).ok());
  EXPECT_THAT(std::string(CheckPromptSize(100, 0, 100).message()), HasSubstr("100"));
  EXPECT_THAT(std::string(CheckPromptSize(60, 41, 100).message()),
              HasSubstr("a prompt of 60 tokens and 41 generated tokens exceed the context of 100"));
  EXPECT_FALSE(CheckPromptSize(int64_t{1} << 40, int64_t{1} << 40, 100).ok());
}

TEST(WireConversion, EveryPartOfARequestIsChecked) {
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

TEST(WireConversion, ADecodeRequestArrivesWhole) {
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

TEST(WireConversion, AChunkedPromptArrivesWhole) {
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

TEST(WireConversion, TheTokensOfAChunkedPromptMayExceedTheContextButNotTheAnswers) {
  v1::DecodeRequest wire = ChunkedRequest();  // 153 tokens
  EXPECT_TRUE(CheckSize(wire, 100).ok());
  Fill(wire.add_generated()->mutable_token_ids(), 0, 101);
  EXPECT_EQ(CheckSize(wire, 100).code(), absl::StatusCode::kInvalidArgument);
  wire.clear_generated();
  for (int i = 0; i <= kMaxChoices; ++i) wire.add_generated();
  EXPECT_EQ(CheckSize(wire, 100).code(), absl::StatusCode::kInvalidArgument);
}

TEST(WireConversion, TheStatusSaysWhatTheWorkerCanDoWithChunkedPrompts) {
  EngineStatus status;
  const auto wire = [&] {
    return WorkerStatusToWire({"w", "h:1", v1::WORKER_ROLE_DECODE}, Epoch(3), status, false);
  };
  EXPECT_FALSE(wire().has_prompt_chunks());
  status.prompt_chunks = std::make_shared<const PromptChunkSupport>(PromptChunkSupport{
      .piece_tokens = 512, .refusal = "windows", .repairs_first = true, .repairs_share = true});
  EXPECT_EQ(wire().prompt_chunks().piece_tokens(), 512);
  EXPECT_EQ(wire().prompt_chunks().refusal(), "windows");
  EXPECT_TRUE(wire().prompt_chunks().repairs_first());
  EXPECT_TRUE(wire().prompt_chunks().repairs_share());
  EXPECT_FALSE(wire().prompt_chunks().hands_over());
}

TEST(WireConversion, ATicketRoundTrips) {
  const v1::TransferTicket wire = Ticket();
  const TransferTicket ticket = TicketFromWire(wire);
  EXPECT_EQ(ticket.transfer_id, 5u);
  EXPECT_EQ(ticket.receiver_epoch, Epoch(6));
  EXPECT_EQ(ticket.first_block, 2);
  EXPECT_EQ(ticket.block_count, 3);
  EXPECT_THAT(ticket.window_first_blocks, ElementsAre(4, 3));
  EXPECT_EQ(TicketToWire(ticket).SerializeAsString(), wire.SerializeAsString());
}

TEST(WireConversion, PrefillsPullsAndSendsArriveWhole) {
  v1::PrefillRequest prefill;
  prefill.set_request_id("r");
  Fill(prefill.mutable_prompt_token_ids(), 1, 2);
  Fill(prefill.mutable_generated()->mutable_token_ids(), 8, 1);
  prefill.set_priority(4);
  *prefill.mutable_ticket() = Ticket();
  const PrefillRequest asked = PrefillRequestFromWire(std::move(prefill), {});
  EXPECT_THAT(asked.prompt, ElementsAre(1, 2));
  EXPECT_THAT(asked.generated.tokens, ElementsAre(8));
  EXPECT_EQ(asked.priority, 4);
  EXPECT_EQ(asked.ticket.transfer_id, 5u);

  v1::PullPrefixRequest pull;
  Fill(pull.mutable_token_ids(), 1, 3);
  pull.set_cache_namespace(2);
  pull.set_timeout_ms(70);
  pull.set_priority(-1);
  const PullRequest pulled = PullRequestFromWire(pull);
  EXPECT_THAT(pulled.tokens, ElementsAre(1, 2, 3));
  EXPECT_EQ(pulled.cache_namespace, CacheNamespace(2));
  EXPECT_EQ(pulled.timeout_ms, 70);
  EXPECT_EQ(pulled.priority, -1);

  v1::SendPrefixRequest send;
  Fill(send.mutable_token_ids(), 1, 3);
  *send.mutable_ticket()->mutable_ticket() = Ticket();
  EXPECT_EQ(SendPrefixRequestFromWire(send).ticket.block_count, 3);
}

// Returns a function that counts the blocks of `bytes_per_block` in a number of bytes.
auto BlocksOf(int64_t bytes_per_block) {
  return [bytes_per_block](int64_t bytes) { return bytes / bytes_per_block; };
}

TEST(WireConversion, APoolsNewSizeIsBlocksOrMebibytes) {
  v1::ResizePoolRequest wire;
  EXPECT_FALSE(BlocksFromWire(wire, BlocksOf(1 << 20)).ok()) << "neither";
  wire.set_blocks(7);
  EXPECT_EQ(*BlocksFromWire(wire, BlocksOf(1 << 20)), 7);
  wire.set_kv_cache_mib(7);
  EXPECT_FALSE(BlocksFromWire(wire, BlocksOf(1 << 20)).ok()) << "both";
  wire.set_blocks(-1);
  EXPECT_FALSE(BlocksFromWire(wire, BlocksOf(1 << 20)).ok());
  wire.set_blocks(0);
  EXPECT_EQ(*BlocksFromWire(wire, BlocksOf(1 << 19)), 14);
  EXPECT_FALSE(BlocksFromWire(wire, BlocksOf(8 << 20)).ok()) << "less than a block";
  for (const int64_t mib : {int64_t{1} << 40, INT64_MAX}) {
    wire.set_kv_cache_mib(mib);
    const absl::Status status = BlocksFromWire(wire, BlocksOf(1)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(std::to_string(mib)));
  }
}

TEST(WireConversion, TokensAndTheEndCarryTheirFigures) {
  const v1::Tokens tokens = TokensToWire({.choice = 1,
                                          .token_ids = {5, 6},
                                          .text = "ab",
                                          .logprobs = {{.logprob = -1, .top = {{7, -2}}}},
                                          .logits_hash = 0});
  EXPECT_EQ(tokens.choice(), 1);
  EXPECT_THAT(tokens.token_ids(), ElementsAre(5, 6));
  EXPECT_EQ(tokens.text(), "ab");
  EXPECT_EQ(tokens.logprobs(0).top(0).token_id(), 7);
  EXPECT_FLOAT_EQ(tokens.logprobs(0).top(0).logprob(), -2);

  FinishInfo info;
  info.reason = FinishReason::kLength;
  info.prompt_tokens = 10;
  info.completion_tokens = 4;
  info.ledger.cached_tokens = 3;
  info.ledger.prefill_cached_tokens = 8;
  EXPECT_EQ(FinishedToWire(info).reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(FinishedToWire(info).usage().cached_tokens(), 3);
  info.ledger.prefilled_elsewhere = true;
  EXPECT_EQ(FinishedToWire(info).usage().cached_tokens(), 8) << "the prefill worker's figure";
  info.reason = FinishReason::kStop;
  EXPECT_EQ(FinishedToWire(info).reason(), v1::FINISH_REASON_STOP);
}

TEST(WireConversion, AWorkersStatusNamesItsPoolAndItself) {
  EngineStatus status;
  status.block_size = 16;
  status.paged = false;
  status.prefix_cache = false;
  status.pool = {.before = 9, .limit = 9, .reserved = 12, .retiring = 1};
  status.cache.blocks.total = 10;
  status.context_length = 512;
  status.conservation_error = "lost";
  status.kv_bytes_through_host = int64_t{5} << 40;
  const v1::WorkerStatus wire =
      WorkerStatusToWire({"w", "h:1", v1::WORKER_ROLE_DECODE}, Epoch(3), status, /*draining=*/true);
  EXPECT_EQ(wire.worker_id(), "w");
  EXPECT_EQ(wire.address(), "h:1");
  EXPECT_EQ(wire.epoch(), 3u);
  EXPECT_TRUE(wire.draining());
  EXPECT_EQ(wire.context_length(), 512);
  EXPECT_EQ(wire.conservation_error(), "lost");
  EXPECT_EQ(wire.kv_bytes_through_host(), int64_t{5} << 40);
  EXPECT_EQ(wire.pool().block_size(), 16);
  EXPECT_EQ(wire.pool().limit_blocks(), 9);
  EXPECT_EQ(wire.pool().reserved_blocks(), 12);
  EXPECT_EQ(wire.pool().retiring_blocks(), 1);
  EXPECT_EQ(wire.pool().total_blocks(), 10);
  EXPECT_FALSE(wire.pool().paged());
  EXPECT_TRUE(wire.pool().has_prefix_cache());
  EXPECT_FALSE(wire.pool().prefix_cache());
}

TEST(WireConversion, ClearingNamesOneNamespaceOrAll) {
  ModelInfo model;
  model.fingerprint = "m";
  v1::ClearCacheRequest wire;
  EXPECT_EQ(NamespaceFromWire(wire, model), std::nullopt);
  wire.mutable_only()->set_tenant("t");
  EXPECT_EQ(NamespaceFromWire(wire, model),
            MakeNamespace({.tenant = "t", .cache_salt = "", .lora = "", .model_revision = "m"}));
}

}  // namespace
}  // namespace baton
