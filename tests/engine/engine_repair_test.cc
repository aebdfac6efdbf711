// Chunk repair through a whole engine with the small model. Tokens and logits depend on the mode
// and the repair alone, and a repair changes nothing for other requests.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "common/str_cat.h"
#include "engine/engine.h"
#include "engine/in_process_pair.h"
#include "tests/engine/tiny_chunks.h"
#include "tests/model/divisible_model.h"

namespace baton {
namespace {

ChunkRepair RepairOf(const std::string& name) { return *ParseChunkRepair(name); }

std::vector<ChunkOptions> EveryRepair() {
  std::vector<ChunkOptions> all;
  for (ChunkOptions mode : EveryMode()) {
    for (const char* name : {"first:3", "first:16", "first:4096", "share:0.15", "share:1"}) {
      mode.repair = RepairOf(name);
      all.push_back(mode);
    }
  }
  return all;
}

std::string Name(const ChunkOptions& options) {
  return StrCat(ChunkPositionsName(options.positions), " ", ChunkScopeName(options.scope), " ",
                ChunkRepairName(options.repair));
}

// Tokens that are repaired of chunks of 37, 20 and 16 tokens.
int32_t CountRepaired(const ChunkOptions& options) {
  int32_t count = 0;
  if (options.repair.kind == ChunkRepair::Kind::kShare) {
    count = (options.scope == ChunkScope::kAlone ? 37 : 0) + 20 + 16;
    return static_cast<int32_t>(std::ceil(options.repair.share_millionths * 1e-6 * count - 1e-9));
  }
  const int32_t first = options.repair.first_tokens;
  if (options.scope == ChunkScope::kAlone) count += std::min(37, first);
  return count + std::min(20, first) + std::min(16, first);
}

TEST(EngineRepair, EveryRepairGivesTheSameBitsOnEveryPath) {
  for (const ChunkOptions& options : EveryRepair()) {
    SCOPED_TRACE(Name(options));
    const auto plain = MakeEngine(TinyOptions());
    const ChunkedPrompt prompt = PromptOf(options, 11, {37, 20, 16}, 9);
    const SinkRecord cold = Ask(*plain, RequestOf(prompt));
    const SinkRecord drawn = Ask(*plain, RequestOf(prompt, 7));
    ASSERT_TRUE(cold.finish.has_value()) << *cold.error;
    const int32_t repaired = CountRepaired(options);
    EXPECT_EQ(cold.finish->ledger.chunk.repaired_tokens, repaired);
    EXPECT_EQ(cold.finish->ledger.computed_tokens, TokensOf(prompt) + repaired);
    const SinkRecord warm = Ask(*plain, RequestOf(prompt));
    ExpectSame(warm, cold);
    EXPECT_EQ(warm.finish->ledger.chunk.hits, 3);
    EXPECT_EQ(warm.finish->ledger.computed_tokens, 9 + repaired);
    int way = 0;
    for (const EngineOptions& other : OtherWays()) {
      SCOPED_TRACE(StrCat("way ", way++));
      const auto engine = MakeEngine(other);
      ExpectSameBesideOthers(*engine, prompt, cold);
      ExpectSame(Ask(*engine, RequestOf(prompt)), cold);
      ExpectSame(Ask(*engine, RequestOf(prompt, 7)), drawn);
    }
  }
}

TEST(EngineRepair, EveryKvTypeRepairsTheSameInSlices) {
  for (const KvType type : {KvType::kF32, KvType::kBF16, KvType::kInt8, KvType::kFp8}) {
    for (const ChunkOptions& options : EveryRepair()) {
      SCOPED_TRACE(StrCat(KvTypeName(type), " ", Name(options)));
      EngineOptions way = TinyOptions();
      way.kv_type = type;
      const ChunkedPrompt prompt = PromptOf(options, 11, {37, 20, 16}, 9);
      const SinkRecord expected = Ask(*MakeEngine(way), RequestOf(prompt));
      way.token_budget = 5;
      way.block_size = 4;
      way.kv_blocks = 400;
      const auto sliced = MakeEngine(way);
      ExpectSame(Ask(*sliced, RequestOf(prompt)), expected);
      ExpectSame(Ask(*sliced, RequestOf(prompt)), expected);
    }
  }
}

TEST(EngineRepair, RepairsDifferFromEachOtherAndFromNone) {
  for (ChunkOptions options : EveryMode()) {
    const auto engine = MakeEngine(TinyOptions());
    std::vector<uint64_t> hashes;
    for (const char* name : {"none", "first:3", "first:16", "first:4096", "share:0.15"}) {
      options.repair = RepairOf(name);
      hashes.push_back(
          Ask(*engine, RequestOf(PromptOf(options, 11, {37, 20, 16}, 9))).finish->logits_hash);
    }
    for (size_t i = 0; i < hashes.size(); ++i) {
      for (size_t j = 0; j < i; ++j) EXPECT_NE(hashes[i], hashes[j]) << Name(options);
    }
  }
}

// Issue 17, the mutant "repaired KV cached".
TEST(EngineRepair, ARepairChangesNoStoredChunk) {
  for (const ChunkOptions& options : EveryRepair()) {
    SCOPED_TRACE(Name(options));
    ChunkedPrompt plain = PromptOf(options, 11, {37, 20, 16}, 9);
    plain.options.repair = {};
    const SinkRecord expected = Ask(*MakeEngine(TinyOptions()), RequestOf(plain));
    const auto engine = MakeEngine(TinyOptions());
    const ChunkedPrompt repaired = PromptOf(options, 11, {37, 20, 16}, 9);
    const SinkRecord cold = Ask(*engine, RequestOf(repaired));
    const SinkRecord after = Ask(*engine, RequestOf(plain));
    EXPECT_EQ(after.finish->ledger.chunk.hits, 3);
    ExpectSame(after, expected);
    ExpectSame(Ask(*engine, RequestOf(repaired)), cold);
  }
}

TEST(EngineRepair, TheWholeShareHasTheBitsOfAllFirstTokens) {
  for (ChunkOptions options : EveryMode()) {
    const auto engine = MakeEngine(TinyOptions());
    options.repair = RepairOf("first:4096");
    const SinkRecord first = Ask(*engine, RequestOf(PromptOf(options, 11, {37, 20, 16}, 9)));
    options.repair = RepairOf("share:1");
    ExpectSame(Ask(*engine, RequestOf(PromptOf(options, 11, {37, 20, 16}, 9))), first);
  }
}

TEST(EngineRepair, ARepairOfNothingIsNoRepair) {
  for (ChunkOptions options : EveryMode()) {
    const auto engine = MakeEngine(TinyOptions());
    const SinkRecord none = Ask(*engine, RequestOf(PromptOf(options, 11, {37, 20}, 9)));
    for (const char* name : {"first:0", "share:0"}) {
      options.repair = RepairOf(name);
      ExpectSame(Ask(*engine, RequestOf(PromptOf(options, 11, {37, 20}, 9))), none);
    }
  }
}

TEST(EngineRepair, PiecesOfALongChunkAreRepairedAsOneChunk) {
  EngineOptions options = TinyOptions();
  options.kv_blocks = 200;
  options.context_length = 0;
  const auto whole = MakeEngine(options);
  options.prompt_chunk_tokens = 256;
  options.chunk_cache_share = 0.9;
  const auto pieces = MakeEngine(options);
  for (ChunkOptions mode : EveryMode()) {
    for (const char* name : {"first:270", "share:0.3"}) {
      mode.repair = RepairOf(name);
      const ChunkedPrompt prompt = PromptOf(mode, 11, {20, 300}, 9);
      const SinkRecord expected = Ask(*whole, RequestOf(prompt));
      ExpectSame(Ask(*pieces, RequestOf(prompt)), expected);
      const SinkRecord warm = Ask(*pieces, RequestOf(prompt));
      ExpectSame(warm, expected);
      EXPECT_GT(warm.finish->ledger.chunk.repaired_tokens, 0);
      EXPECT_EQ(warm.finish->ledger.computed_tokens, 9 + warm.finish->ledger.chunk.repaired_tokens);
    }
  }
}

TEST(EngineRepair, ChoicesContinueTheRepairedPrompt) {
  for (const ChunkOptions& options : EveryRepair()) {
    const auto engine = MakeEngine(TinyOptions());
    GenerateRequest request = RequestOf(PromptOf(options, 11, {37, 20, 16}, 9), 5);
    request.n = 3;
    SinkRecord record = Ask(*engine, request);
    ASSERT_FALSE(record.error.has_value()) << *record.error;
    for (int32_t choice = 0; choice < 3; ++choice) {
      GenerateRequest alone = request;
      alone.n = 1;
      alone.sampling.seed = 5 + choice;
      ExpectSame(record.Choice(choice), Ask(*engine, alone));
    }
  }
}

// With whole segments, no tile of attention moves. Sequential positions with everything repaired
// then are the ordinary prompt, apart from the rounding of keys that stand further on.
TEST(EngineRepair, EverythingRepairedAtItsPlaceComesCloseToTheOrdinaryPrompt) {
  EngineOptions options = TinyOptions();
  options.model = TinyModelFile("f32");
  options.kv_type = KvType::kF32;
  const auto engine = MakeEngine(options);
  ChunkedPrompt prompt = PromptOf({.positions = ChunkPositions::kSequential}, 64, {128, 64}, 20);
  GenerateRequest ordinary = RequestOf(prompt);
  ordinary.chunked.reset();
  ordinary.sampling.logprobs = 20;
  const SinkRecord wanted = Ask(*engine, ordinary);
  const auto largest_difference = [&](const std::string& repair) {
    prompt.options.repair = RepairOf(repair);
    GenerateRequest request = RequestOf(prompt);
    request.sampling = ordinary.sampling;
    const SinkRecord said = Ask(*engine, request);
    double largest = 0;
    for (const TokenLogprob& one : wanted.logprobs.at(0).top) {
      double nearest = 10;
      for (const TokenLogprob& other : said.logprobs.at(0).top) {
        if (other.token == one.token) nearest = std::abs(one.logprob - other.logprob);
      }
      largest = std::max(largest, nearest);
    }
    return largest;
  };
  EXPECT_LT(largest_difference("first:4096"), 1e-3);
  EXPECT_GT(largest_difference("none"), 1e-2);
}

TEST(EngineRepair, TheDecodeEngineOfAPairRepairs) {
  const auto engine = MakeEngine(TinyOptions());
  const auto pair = InProcessPair::Create(TinyOptions(), PairTransport::kLoopback);
  ASSERT_TRUE(pair.ok()) << pair.status();
  for (const char* repair : {"first:3", "share:0.3"}) {
    const ChunkedPrompt prompt = PromptOf({.repair = RepairOf(repair)}, 11, {37, 20}, 9);
    auto sink = std::make_shared<WaitingSink>();
    (*pair)->Generate(RequestOf(prompt), sink);
    ExpectSame(sink->WaitForEnd(), Ask(*engine, RequestOf(prompt)));
  }
}

TEST(EngineRepair, SeveralRanksRepairLikeOne) {
  EngineOptions options = TinyOptions();
  options.model = DivisibleModelFile(GgmlType::kQ8_0);
  for (const KvType type : {KvType::kF16, KvType::kInt8}) {
    options.kv_type = type;
    for (const char* repair : {"first:7", "share:0.3"}) {
      const ChunkedPrompt prompt = PromptOf({.repair = RepairOf(repair)}, 11, {37, 20, 16}, 9);
      options.tensor_parallel = 1;
      const SinkRecord expected = Ask(*MakeEngine(options), RequestOf(prompt));
      for (const int32_t degree : {2, 3, 12}) {
        SCOPED_TRACE(StrCat(repair, ", degree ", degree));
        options.tensor_parallel = degree;
        const auto ranks = MakeEngine(options);
        ExpectSame(Ask(*ranks, RequestOf(prompt)), expected);
        ExpectSame(Ask(*ranks, RequestOf(prompt)), expected);
        ExpectSameBesideOthers(*ranks, prompt, expected);
      }
    }
  }
}

}  // namespace
}  // namespace baton
