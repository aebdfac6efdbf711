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
  status.sleeping_chunks = {.entries = 10,
                            .bytes = 11,
                            .limit_bytes = 12,
                            .sleeps = 13,
                            .wakes = 14,
                            .damaged = 15,
                            .dropped = 16};
  const v1::ChunkCacheStatus wire = PoolToWire(status).chunk_cache();
  EXPECT_EQ(wire.sleeping_entries(), 10);
  EXPECT_EQ(wire.sleeping_bytes(), 11);
  EXPECT_EQ(wire.sleeping_limit_bytes(), 12);
  EXPECT_EQ(wire.sleeps(), 13);
  EXPECT_EQ(wire.wakes(), 14);
  EXPECT_EQ(wire.damaged(), 15);
  EXPECT_EQ(wire.sleepers_dropped(), 16);
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

TEST(WireConversion, TheStatusHasThePromptTokensThatAreLeft) {
  EngineStatus status;
  const auto wire = [&] {
    return WorkerStatusToWire({"w", "h:1", v1::WORKER_ROLE_DECODE}, Epoch(3), status, false);
  };
  EXPECT_TRUE(wire().has_prompt_tokens_left()) << "0 is a report too";
  status.prompt_tokens_left = 700;
  EXPECT_EQ(wire().prompt_tokens_left(), 700);
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
