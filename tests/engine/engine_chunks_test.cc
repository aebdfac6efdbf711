// Chunked prompts through a whole engine with the small model. Tokens and logits depend on the mode
// alone: not on the cache, the batch, the blocks, the layout or the steps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/str_cat.h"
#include "engine/engine.h"
#include "engine/in_process_pair.h"
#include "tests/engine/tiny_chunks.h"

namespace baton {
namespace {

TEST(EngineChunks, EveryModeGivesTheSameBitsOnEveryPath) {
  for (const ChunkOptions mode : EveryMode()) {
    const auto plain = MakeEngine(TinyOptions());
    const ChunkedPrompt prompt = PromptOf(mode, 11, {37, 20, 16}, 9);
    const SinkRecord cold = Ask(*plain, RequestOf(prompt));
    const SinkRecord drawn = Ask(*plain, RequestOf(prompt, 7));
    ASSERT_TRUE(cold.finish.has_value()) << *cold.error;
    EXPECT_EQ(cold.finish->ledger.computed_tokens, TokensOf(prompt));
    const SinkRecord warm = Ask(*plain, RequestOf(prompt));
    ExpectSame(warm, cold);
    EXPECT_EQ(warm.finish->ledger.chunk.hits, 3);
    EXPECT_EQ(warm.finish->ledger.computed_tokens, 9);
    int way = 0;
    for (const EngineOptions& options : OtherWays()) {
      SCOPED_TRACE(StrCat(ChunkPositionsName(mode.positions), " ", ChunkScopeName(mode.scope),
                          ", way ", way++));
      const auto engine = MakeEngine(options);
      ExpectSameBesideOthers(*engine, prompt, cold);
      ExpectSame(Ask(*engine, RequestOf(prompt)), cold);
      ExpectSame(Ask(*engine, RequestOf(prompt, 7)), drawn);
    }
  }
}

TEST(EngineChunks, ABitOfAChunkDependsNeitherOnItsPlaceNorItsNeighbours) {
  for (const ChunkOptions mode : EveryMode()) {
    // The chunks come from other prompts, where they had other neighbours and places.
    const ChunkedPrompt prompt = PromptOf(mode, 11, {37, 20, 33}, 9);
    const auto cold = MakeEngine(TinyOptions());
    const auto warm = MakeEngine(TinyOptions());
    ChunkedPrompt other = prompt;
    other.chunks = {TinyText(50, 77), prompt.chunks[2], prompt.chunks[0]};
    Ask(*warm, RequestOf(other));
    other.chunks = {prompt.chunks[1]};
    Ask(*warm, RequestOf(other));
    const SinkRecord record = Ask(*warm, RequestOf(prompt));
    EXPECT_EQ(record.finish->ledger.chunk.hits, 3);
    ExpectSame(record, Ask(*cold, RequestOf(prompt)));
  }
}

TEST(EngineChunks, PiecesOfALongChunkGiveTheBitsOfTheWholeChunk) {
  EngineOptions options = TinyOptions();
  options.kv_blocks = 200;
  options.context_length = 0;
  const auto whole = MakeEngine(options);
  options.prompt_chunk_tokens = 256;
  options.chunk_cache_share = 0.9;
  const auto pieces = MakeEngine(options);
  for (const ChunkOptions mode : EveryMode()) {
    const ChunkedPrompt prompt = PromptOf(mode, 11, {300, 20}, 9);
    const SinkRecord expected = Ask(*whole, RequestOf(prompt));
    ExpectSame(Ask(*pieces, RequestOf(prompt)), expected);
    const SinkRecord warm = Ask(*pieces, RequestOf(prompt));
    ExpectSame(warm, expected);
    EXPECT_EQ(warm.finish->ledger.chunk.hits, 2);
    EXPECT_EQ(warm.finish->ledger.computed_tokens, 9);
  }
}

// Issue 17, exactness 2.
TEST(EngineChunks, OneChunkOfWholeSegmentsGivesTheBitsOfTheOrdinaryPrompt) {
  EngineOptions options = TinyOptions();
  options.kv_blocks = 200;
  const auto engine = MakeEngine(options);
  for (const auto positions : {ChunkPositions::kOverlap, ChunkPositions::kSequential}) {
    for (const bool has_chunk : {true, false}) {  // the model's context has room for one of them
      for (const uint64_t seed : {0, 5}) {
        const ChunkedPrompt prompt = has_chunk ? PromptOf({.positions = positions}, 0, {256}, 20)
                                               : PromptOf({.positions = positions}, 256, {}, 20);
        GenerateRequest ordinary = RequestOf(prompt, seed);
        ordinary.chunked.reset();
        ExpectSame(Ask(*engine, RequestOf(prompt, seed)), Ask(*engine, ordinary));
      }
    }
  }
}

TEST(EngineChunks, DecodeStepsWithFramesReplayTheGraphs) {
  const auto engine = MakeEngine(TinyOptions());
  const ChunkedPrompt prompt = PromptOf({}, 11, {37, 20}, 9);
  Ask(*engine, RequestOf(prompt));
  const std::string before = engine->Inspect().op_path;
  EXPECT_THAT(before, testing::HasSubstr(StrCat(" ", kTinyAnswer - 1, " graph replays")));
}

TEST(EngineChunks, ClearingANamespaceForgetsTheAnswersBehindItsChunks) {
  const auto engine = MakeEngine(TinyOptions());
  GenerateRequest request = RequestOf(PromptOf({}, 16, {37, 20}, 40));
  const GenerateRequest others = request;
  request.cache_namespace = CacheNamespace{5};
  const SinkRecord cold = Ask(*engine, request);
  const SinkRecord theirs = Ask(*engine, others);
  ASSERT_TRUE(engine->ClearCache(CacheNamespace{5}).ok());
  const SinkRecord again = Ask(*engine, request);
  EXPECT_EQ(again.finish->ledger.computed_tokens, cold.finish->ledger.computed_tokens);
  ExpectSame(again, cold);
  EXPECT_LT(Ask(*engine, others).finish->ledger.computed_tokens, 40) << "another tenant's stay";
  ASSERT_TRUE(engine->ClearCache(CacheNamespace{5}).ok());
  ASSERT_TRUE(engine->ClearCache(CacheNamespace{0}).ok());
  EXPECT_EQ(engine->Status().cache.blocks.cached, 0);
}

TEST(EngineChunks, ChunksAreListedAndClearedWithoutThePrefixes) {
  const auto engine = MakeEngine(TinyOptions());
  const ChunkedPrompt prompt = PromptOf({}, 16, {37, 20}, 9);  // the system part is one block
  const SinkRecord cold = Ask(*engine, RequestOf(prompt));
  Ask(*engine, RequestOf(prompt));
  const std::vector<ChunkCache::EntryInfo> entries = engine->ListChunks();
  ASSERT_EQ(entries.size(), 2u);
  const EngineStatus status = engine->Status();
  EXPECT_GT(status.chunk_cache.used_blocks, 0);
  EXPECT_EQ(status.cache.evictable, status.cache.blocks.cached) << "no request uses them";
  EXPECT_EQ(status.groups.at(0).evictable, status.cache.evictable);
  EXPECT_EQ(entries[0].tokens + entries[1].tokens, 57);
  for (const ChunkCache::EntryInfo& entry : entries) {
    EXPECT_EQ(entry.position, 16);
    EXPECT_EQ(entry.uses, 1);
    EXPECT_EQ(entry.references, 0);
    EXPECT_LE(entry.idle_us, entry.age_us);
    EXPECT_GT(entry.age_us, 0);
  }
  EXPECT_EQ(*engine->ClearChunks(CacheNamespace(99)), 0);
  EXPECT_EQ(*engine->ClearChunks(RequestOf(prompt).cache_namespace), 3 + 2);
  EXPECT_TRUE(engine->ListChunks().empty());
  const SinkRecord again = Ask(*engine, RequestOf(prompt));
  ExpectSame(again, cold);
  EXPECT_EQ(again.finish->ledger.chunk.hits, 0);
  EXPECT_EQ(again.finish->ledger.computed_tokens, 57 + 9) << "the system part is still cached";
}

TEST(EngineChunks, TheContextBoundsPositionsAndNotTokens) {
  EngineOptions options = TinyOptions();
  options.context_length = 64;
  const auto engine = MakeEngine(options);
  const ChunkedPrompt overlap = PromptOf({}, 8, {40, 40, 40, 40}, 8);
  const SinkRecord record = Ask(*engine, RequestOf(overlap));
  ASSERT_TRUE(record.finish.has_value()) << *record.error;
  EXPECT_EQ(record.finish->prompt_tokens, 8 + 160 + 8);
  EXPECT_EQ(record.tokens.size(), 8u);
  GenerateRequest longer = RequestOf(overlap);
  longer.sampling.max_tokens.reset();
  const SinkRecord full = Ask(*engine, longer);
  EXPECT_EQ(full.tokens.size(), 8u) << "up to the context's end";
  EXPECT_EQ(full.finish->reason, FinishReason::kLength);
  const ChunkedPrompt sequential =
      PromptOf({.positions = ChunkPositions::kSequential}, 8, {40, 40}, 8);
  EXPECT_EQ(*Ask(*engine, RequestOf(sequential)).error,
            absl::InvalidArgumentError("part 2 (chunks[1]) reaches position 87; the context of 64 "
                                       "tokens ends at position 63"));
}

SinkRecord AskPair(InProcessPair& pair, const GenerateRequest& request) {
  auto sink = std::make_shared<WaitingSink>();
  pair.Generate(request, sink);
  return sink->WaitForEnd();
}

void ExpectPairAnswersLikeOne(PairTransport transport, const EngineOptions& options,
                              std::optional<KvGeometry> prefill_pool) {
  const auto engine = MakeEngine(TinyOptions());
  const auto pair = InProcessPair::Create(options, transport, prefill_pool);
  ASSERT_TRUE(pair.ok()) << pair.status();
  for (const ChunkOptions mode : EveryMode()) {
    SCOPED_TRACE(StrCat(ChunkPositionsName(mode.positions), " ", ChunkScopeName(mode.scope)));
    const ChunkedPrompt prompt = PromptOf(mode, 11, {37, 20, 16}, 9);
    for (const uint64_t seed : {0, 7}) {
      const SinkRecord expected = Ask(*engine, RequestOf(prompt, seed));
      const SinkRecord cold = AskPair(**pair, RequestOf(prompt, seed));
      ExpectSame(cold, expected);
      EXPECT_TRUE(cold.finish->ledger.prefilled_elsewhere);
      EXPECT_EQ(cold.finish->ledger.chunk.chunks, 3);
    }
    // Other neighbours, another order, and a chunk that the decode engine lacks.
    ChunkedPrompt other = prompt;
    other.chunks = {prompt.chunks[2], TinyText(25, 78), prompt.chunks[0]};
    ExpectSame(AskPair(**pair, RequestOf(other)), Ask(*engine, RequestOf(other)));
  }
  EXPECT_EQ((*pair)->decode().Inspect().status.prefill_tokens, 0);
  EXPECT_EQ((*pair)->prefill().Inspect().status.decode_tokens, 0);
}

TEST(EngineChunks, APairOfEnginesAnswersLikeOneOverEveryTransport) {
  for (const auto transport :
       {PairTransport::kLoopback, PairTransport::kTcp, PairTransport::kShm}) {
    ExpectPairAnswersLikeOne(transport, TinyOptions(), std::nullopt);
  }
}

TEST(EngineChunks, APairOfEnginesAnswersLikeOneBetweenPoolsOfAnyShape) {
  EngineOptions options = TinyOptions();
  options.block_size = 16;
  for (const KvGeometry& pool :
       {KvGeometry{KvLayoutKind::kLayerMajor, 16}, KvGeometry{KvLayoutKind::kBlockMajor, 32},
        KvGeometry{KvLayoutKind::kLayerMajor, 4}}) {
    ExpectPairAnswersLikeOne(PairTransport::kLoopback, options, pool);
  }
  options.chunk_cache_share = 0;
  ExpectPairAnswersLikeOne(PairTransport::kLoopback, options, std::nullopt);
  options.token_budget = options.max_chunk_tokens = 7;
  options.device = "cpu-async";
  options.steps_in_flight = 2;
  ExpectPairAnswersLikeOne(PairTransport::kTcp, options, std::nullopt);
}

TEST(EngineChunks, AModelWithSlidingWindowsIsRefusedByName) {
  EngineOptions options = TinyOptions();
  options.model = TinyModelFile("window-q4_0");
  const auto engine = MakeEngine(options);
  const SinkRecord record = Ask(*engine, RequestOf(PromptOf({}, 4, {9}, 4)));
  ASSERT_TRUE(record.error.has_value());
  EXPECT_EQ(record.error->code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(record.error->message()), testing::HasSubstr("sliding windows"));
}

}  // namespace
}  // namespace baton
