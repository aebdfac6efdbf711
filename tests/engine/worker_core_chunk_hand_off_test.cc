// Chunked prompts between two workers: one prefills, the other decodes. Chunks land as chunks, and
// the answer is that of one worker.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/str_cat.h"
#include "engine/worker_core.h"
#include "tests/engine/chunk_pair.h"
#include "tests/engine/chunked_prompt.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kAnswer = 9;

ChunkedPrompt ThreeChunks(ChunkOptions mode) {
  return PromptOf("Be brief.", {"a first chunk", "the second one is longer", "third"},
                  "Who signed it?", mode);
}

void ExpectAnswer(const ChunkPair& pair, const PairedRequest& asked) {
  ASSERT_FALSE(asked.record->error.has_value()) << *asked.record->error;
  ASSERT_TRUE(asked.record->finish.has_value());
  EXPECT_EQ(asked.record->tokens,
            ChunkedContinuation(pair.decodes.runner, *asked.request.chunked, kAnswer));
}

PairedRequest Ask(ChunkPair& pair, const ChunkedPrompt& prompt) {
  PairedRequest asked = pair.Start(prompt, kAnswer);
  pair.Run();
  ExpectAnswer(pair, asked);
  EXPECT_TRUE(asked.prefilled->done.has_value() && asked.prefilled->done->ok())
      << asked.prefilled->done->status();
  pair.ExpectAllBlocksHome();
  return asked;
}

BenchOptions Blocks(int32_t block_size, double share = 0.5) {
  return {.num_blocks = 600 / block_size,
          .block_size = block_size,
          .prompt_parts = {.cache = {.share = share}, .piece_tokens = 256}};
}

TEST(WorkerCoreChunkHandOff, EveryModeAnswersLikeOneWorkerAtAnyBlockSize) {
  for (const ChunkOptions mode : EveryMode()) {
    for (const auto& [theirs, ours] :
         std::vector<std::pair<int32_t, int32_t>>{{4, 4}, {4, 16}, {16, 4}, {1, 8}, {8, 1}}) {
      for (const double share : {0.0, 0.5}) {
        SCOPED_TRACE(StrCat(ChunkPositionsName(mode.positions), " ", ChunkScopeName(mode.scope),
                            ", blocks of ", theirs, " to ", ours, ", share ", share));
        ChunkPair pair(Blocks(theirs, share), Blocks(ours, share));
        const ChunkedPrompt prompt = ThreeChunks(mode);
        const PairedRequest cold = Ask(pair, prompt);
        EXPECT_EQ(pair.decodes.core->counters().prefill_tokens, 0);
        const RequestLedger& ledger = cold.record->finish->ledger;
        EXPECT_TRUE(ledger.prefilled_elsewhere);
        EXPECT_EQ(ledger.chunk.chunks, 3);
        EXPECT_EQ(ledger.chunk.hits, 0);
        EXPECT_EQ(ledger.computed_tokens, TokensOf(prompt));
        EXPECT_EQ(ledger.cached_tokens, 0);
        EXPECT_GT(ledger.kv_bytes, 0);
        const int32_t tail = 9 % ours == 0 ? 0 : 1;  // of the system part
        EXPECT_EQ(pair.decodes.core->chunk_stats().entries, share > 0 ? 3 + tail : 0)
            << "chunks land as chunks";
        ChunkedPrompt turned = prompt;
        std::swap(turned.chunks[0], turned.chunks[2]);
        turned.question = Bytes("And now?");
        const PairedRequest warm = Ask(pair, turned);
        EXPECT_EQ(pair.decodes.core->counters().prefill_tokens, 0);
        if (share == 0) continue;
        EXPECT_EQ(warm.record->ticket->parts.size(), 0u) << "the decode worker has every part";
        EXPECT_EQ(warm.record->finish->ledger.chunk.hits, 3);
        EXPECT_EQ(warm.record->finish->ledger.computed_tokens, 8);
        EXPECT_EQ(warm.record->finish->ledger.cached_tokens, TokensOf(turned) - 8);
        EXPECT_EQ(warm.record->finish->ledger.prefill_cached_tokens, TokensOf(turned) - 8);
      }
    }
  }
}

TEST(WorkerCoreChunkHandOff, OnlyMissingPartsTravel) {
  for (const ChunkOptions mode : EveryMode()) {
    ChunkPair pair;
    const PairedRequest first =
        Ask(pair, PromptOf("Be brief.", {"the second one is longer"}, "Who?", mode));
    const size_t system = 1;
    EXPECT_EQ(first.record->ticket->parts.size(), 1 + system);
    const PairedRequest second = Ask(pair, ThreeChunks(mode));
    EXPECT_EQ(second.record->ticket->parts.size(), 2u);
    EXPECT_LT(second.record->finish->ledger.kv_bytes, first.record->finish->ledger.kv_bytes * 3);
  }
}

// The prefill worker has nothing of what the decode worker has: it computes every part, because its
// question attends to them, but sends none.
TEST(WorkerCoreChunkHandOff, PartsThatOnlyTheReceiverHasAreComputedButNotSent) {
  for (const ChunkOptions mode : EveryMode()) {
    ChunkPair pair;
    const ChunkedPrompt prompt = ThreeChunks(mode);
    const auto local = pair.decodes.Generate(ChunkedRequest(prompt, kAnswer));
    pair.decodes.Run();
    ASSERT_TRUE(local->finish.has_value());
    ChunkedPrompt other = prompt;
    other.question = Bytes("Something else?");
    const PairedRequest asked = Ask(pair, other);
    EXPECT_TRUE(asked.record->ticket->parts.empty());
    EXPECT_EQ(asked.record->finish->ledger.computed_tokens, TokensOf(other));
    EXPECT_EQ(asked.record->finish->ledger.cached_tokens, TokensOf(other) - 15);
  }
}

TEST(WorkerCoreChunkHandOff, PartsThatThePrefillWorkerHasAreSentAtOnce) {
  ChunkPair pair;
  const ChunkedPrompt prompt = ThreeChunks({});
  const auto local = pair.prefills.Generate(ChunkedRequest(prompt, kAnswer));
  pair.prefills.Run();
  ASSERT_TRUE(local->finish.has_value());
  ChunkedPrompt other = prompt;
  other.question = Bytes("Something else?");
  const PairedRequest asked = Ask(pair, other);
  EXPECT_EQ(asked.record->ticket->parts.size(), 4u);
  EXPECT_EQ(asked.record->finish->ledger.computed_tokens, 15);
  EXPECT_EQ(asked.record->finish->ledger.chunk.hits, 3);
  EXPECT_EQ(asked.record->finish->ledger.cached_tokens, 0);
  EXPECT_EQ(asked.record->finish->ledger.prefill_cached_tokens, TokensOf(other) - 15);
}

TEST(WorkerCoreChunkHandOff, ConcurrentRequestsReceiveASharedPartOnce) {
  ChunkPair pair;
  const ChunkedPrompt prompt = ThreeChunks({});
  std::vector<PairedRequest> asked;
  for (int i = 0; i < 3; ++i) asked.push_back(pair.Start(prompt, kAnswer));
  const auto local = pair.decodes.Generate(ChunkedRequest(prompt, kAnswer));
  EXPECT_EQ(asked[0].record->ticket->parts.size(), 4u);
  EXPECT_TRUE(asked[1].record->ticket->parts.empty());
  EXPECT_TRUE(asked[2].record->ticket->parts.empty());
  pair.Run();
  for (const PairedRequest& one : asked) ExpectAnswer(pair, one);
  EXPECT_EQ(local->tokens, asked[0].record->tokens);
  EXPECT_EQ(pair.decodes.core->counters().prefill_tokens, 14) << "the question of the local one";
  pair.ExpectAllBlocksHome();
}

TEST(WorkerCoreChunkHandOff, PiecesOfALongChunkTravelAsParts) {
  for (const ChunkOptions mode : EveryMode()) {
    BenchOptions options{.num_blocks = 400, .context_length = 4096};
    options.prompt_parts = {.cache = {.share = 0.9}, .piece_tokens = 256};
    BenchOptions other = options;
    other.prompt_parts.piece_tokens = 1024;  // the ticket says how to divide
    ChunkPair pair(other, options);
    const std::string text(600, 'x');
    const ChunkedPrompt prompt = PromptOf("system", {text, "short"}, "which?", mode);
    PairedRequest asked = pair.Start(prompt, kAnswer);
    pair.Run();
    ASSERT_TRUE(asked.record->finish.has_value()) << *asked.record->error;
    EXPECT_EQ(asked.record->ticket->parts.size(), 5u);
    EXPECT_EQ(asked.record->ticket->piece_tokens, 256);
    WorkerBench alone(options);
    const auto expected = alone.Generate(ChunkedRequest(prompt, kAnswer));
    alone.Run();
    EXPECT_EQ(asked.record->tokens, expected->tokens);
    EXPECT_EQ(asked.record->finish->logits_hash, expected->finish->logits_hash);
    EXPECT_EQ(pair.decodes.core->counters().prefill_tokens, 0);
    pair.ExpectAllBlocksHome();
  }
}

TEST(WorkerCoreChunkHandOff, ChoicesAndSampledTokensAreThoseOfOneWorker) {
  for (const ChunkOptions mode : EveryMode()) {
    for (const bool penalties : {false, true}) {
      ChunkPair pair;
      GenerateRequest request = ChunkedRequest(ThreeChunks(mode), kAnswer);
      request.n = 3;
      request.sampling.temperature = 3;
      request.sampling.seed = 11;
      if (penalties) request.sampling.repetition_penalty = 1.3f;
      PairedRequest asked = pair.Open(request);
      ASSERT_TRUE(asked.record->ticket.has_value());
      pair.Prefill(asked);
      pair.Run();
      WorkerBench alone;
      const auto expected = alone.Generate(request);
      alone.Run();
      for (int32_t i = 0; i < 3; ++i) {
        EXPECT_EQ(asked.record->Choice(i).tokens, expected->Choice(i).tokens);
        EXPECT_EQ(asked.record->Choice(i).finish->logits_hash,
                  expected->Choice(i).finish->logits_hash);
      }
      EXPECT_EQ(pair.decodes.core->counters().prefill_tokens, 0);
      pair.ExpectAllBlocksHome();
    }
  }
}

TEST(WorkerCoreChunkHandOff, AnAnswerThatAnotherWorkerBeganIsContinued) {
  for (const ChunkOptions mode : EveryMode()) {
    ChunkPair pair;
    WorkerBench alone;
    GenerateRequest request = ChunkedRequest(ThreeChunks(mode), kAnswer);
    const auto expected = alone.Generate(request);
    alone.Run();
    GeneratedPart part;
    part.tokens.assign(expected->tokens.begin(), expected->tokens.begin() + 4);
    part.logits_hash = expected->progress[3].logits_hash;
    request.generated = {part};
    PairedRequest asked = pair.Open(request);
    ASSERT_TRUE(asked.record->ticket.has_value());
    pair.Prefill(asked);
    pair.Run();
    EXPECT_EQ(asked.record->tokens,
              std::vector<TokenId>(expected->tokens.begin() + 4, expected->tokens.end()));
    EXPECT_EQ(asked.record->finish->logits_hash, expected->finish->logits_hash);
    pair.ExpectAllBlocksHome();
  }
}

TEST(WorkerCoreChunkHandOff, ANextTurnPrefillsOnlyNewTokens) {
  ChunkPair pair;
  ChunkedPrompt prompt = ThreeChunks({});
  const PairedRequest first = Ask(pair, prompt);
  prompt.question.insert(prompt.question.end(), first.record->tokens.begin(),
                         first.record->tokens.end());
  const std::vector<TokenId> more = Bytes(" And then?");
  prompt.question.insert(prompt.question.end(), more.begin(), more.end());
  const PairedRequest next = Ask(pair, prompt);
  // The decode worker has the answer too, in whole blocks of 4. Its last token has no KV.
  EXPECT_EQ(next.record->ticket->first_block, (14 + kAnswer - 1) / 4);
  // The prefill worker has the first question.
  EXPECT_EQ(next.record->finish->ledger.computed_tokens,
            static_cast<int32_t>(prompt.question.size()) - 14 / 4 * 4);
}

// ---- failures -----------------------------------------------------------------------------------

// Cuts the hand-off after every number of turns, in every way.
TEST(WorkerCoreChunkHandOff, EveryPhaseMayFail) {
  enum class Cut : uint8_t { kPrefillCancelled, kGivenUp, kDecodeCancelled, kPrefillShutDown };
  for (const Cut cut :
       {Cut::kPrefillCancelled, Cut::kGivenUp, Cut::kDecodeCancelled, Cut::kPrefillShutDown}) {
    for (int turns = 0; turns < 24; ++turns) {
      SCOPED_TRACE(StrCat("cut ", static_cast<int>(cut), " after ", turns, " turns"));
      BenchOptions slow;
      slow.token_budget = slow.max_chunk_tokens = 6;
      ChunkPair pair(slow, {});
      PairedRequest asked = pair.Start(ThreeChunks({}), kAnswer);
      PairedRequest waits = pair.Start(ThreeChunks({}), kAnswer);  // for the same parts
      for (int i = 0; i < turns; ++i) {
        pair.prefills.Turn();
        pair.decodes.Turn();
      }
      switch (cut) {
        case Cut::kPrefillCancelled:
          pair.prefills.core->Cancel(asked.prefill);
          break;
        case Cut::kGivenUp:
          pair.GiveUp(asked);
          break;
        case Cut::kDecodeCancelled:
          pair.decodes.core->Cancel(asked.decode);
          break;
        case Cut::kPrefillShutDown:
          pair.prefills.core->Shutdown(absl::CancelledError("over"));
          break;
      }
      pair.GiveUpIfFailed(asked);
      pair.GiveUpIfFailed(waits);
      ASSERT_TRUE(pair.decodes.core->CheckConservation().ok())
          << pair.decodes.core->CheckConservation();
      std::vector<PairedRequest> both = {asked, waits};
      EXPECT_TRUE(pair.Run(both));
      if (cut != Cut::kDecodeCancelled) ExpectAnswer(pair, asked);
      EXPECT_TRUE(asked.record->ended());
      ExpectAnswer(pair, waits);
      pair.ExpectAllBlocksHome();
    }
  }
}

// The decode worker is told nothing, but the parts never come.
TEST(WorkerCoreChunkHandOff, IfTheOwnerOfATransferEndsTheOthersComputeThePart) {
  ChunkPair pair;
  const ChunkedPrompt prompt = ThreeChunks({});
  PairedRequest owner = pair.Open(ChunkedRequest(prompt, kAnswer));  // its ticket is lost
  const auto local = pair.decodes.Generate(ChunkedRequest(prompt, kAnswer));
  pair.decodes.Run();
  EXPECT_FALSE(local->ended()) << "it waits for the parts";
  pair.decodes.core->Cancel(owner.decode);
  pair.Run();
  EXPECT_EQ(local->tokens, ChunkedContinuation(pair.decodes.runner, prompt, kAnswer));
  pair.ExpectAllBlocksHome();
}

TEST(WorkerCoreChunkHandOff, ADecodeWorkerWithoutRoomRefusesAtOnceAndTakesNothing) {
  BenchOptions small;
  small.num_blocks = 26;
  ChunkPair pair({}, small);
  const ChunkedPrompt prompt = ThreeChunks({});  // 3 + 4 + 6 + 2 blocks of parts, and 4
  PairedRequest first = pair.Open(ChunkedRequest(prompt, 1));
  ASSERT_TRUE(first.record->ticket.has_value());
  ChunkedPrompt other = prompt;
  other.system = Bytes("Be long.");  // other keys
  const PairedRequest refused = pair.Open(ChunkedRequest(other, 1));
  ASSERT_TRUE(refused.record->error.has_value());
  EXPECT_EQ(refused.record->error->code(), absl::StatusCode::kResourceExhausted);
  const PairedRequest shares = pair.Open(ChunkedRequest(prompt, 1));
  EXPECT_TRUE(shares.record->ticket.has_value()) << "the parts are there already";
  pair.decodes.core->Shutdown(absl::CancelledError("over"));
  pair.Run();
  pair.ExpectAllBlocksHome();
}

TEST(WorkerCoreChunkHandOff, HostileTicketsAreRefusedByField) {
  ChunkPair pair;
  const ChunkedPrompt prompt = ThreeChunks({});
  PairedRequest opened = pair.Open(ChunkedRequest(prompt, kAnswer));
  const TransferTicket good = *opened.record->ticket;
  const auto refusal = [&](const TransferTicket& ticket, bool chunked = true) {
    opened.record->ticket = ticket;
    PairedRequest sent = opened;
    if (!chunked) sent.request.chunked.reset();
    pair.Prefill(sent);
    EXPECT_TRUE(sent.prefilled->done.has_value());
    if (!sent.prefilled->done.has_value()) return std::string();
    EXPECT_EQ(sent.prefilled->done->status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(sent.prefilled->done->status().message());
  };
  TransferTicket bad = good;
  bad.parts[1].part = 4;
  EXPECT_THAT(refusal(bad), HasSubstr("names part 4 after part 0"));
  bad.parts[1].part = -1;
  EXPECT_THAT(refusal(bad), HasSubstr("names part -1"));
  bad.parts[1].part = 0;
  EXPECT_THAT(refusal(bad), HasSubstr("names part 0 after part 0"));
  bad = good;
  bad.parts[2].block_count += 1;
  EXPECT_THAT(refusal(bad), HasSubstr("ticket.parts, part 2"));
  bad = good;
  bad.parts[2].first_block = -1;
  EXPECT_THAT(refusal(bad), HasSubstr("ticket.parts, part 2"));
  bad = good;
  bad.parts[2].first_block += bad.parts[2].block_count;
  bad.parts[2].block_count = 0;
  EXPECT_THAT(refusal(bad), HasSubstr("block_count is 0"));
  for (const int32_t pieces : {0, -256, 255, 2147483647}) {
    bad = good;
    bad.piece_tokens = pieces;
    EXPECT_THAT(refusal(bad), HasSubstr(StrCat("pieces of prompt chunks have ", pieces)));
  }
  EXPECT_THAT(refusal(good, /*chunked=*/false), HasSubstr("first_block"));
  bad = good;
  bad.block_count = 24;  // blocks of the whole prompt
  bad.first_block = 0;
  opened.request.prompt.resize(24 * 4);
  EXPECT_THAT(refusal(bad, /*chunked=*/false),
              HasSubstr("the ticket has 4 parts, but the prompt has no chunks"));
  pair.decodes.core->Shutdown(absl::CancelledError("over"));
  pair.Run();
  pair.ExpectAllBlocksHome();
}

TEST(WorkerCoreChunkHandOff, ResizedAndClearedCachesGiveTheSameAnswer) {
  for (int turns = 0; turns < 16; ++turns) {
    BenchOptions options{.num_blocks = 100, .max_blocks = 100};
    options.token_budget = options.max_chunk_tokens = 6;
    ChunkPair pair(options);
    PairedRequest asked = pair.Start(ThreeChunks({}), kAnswer);
    for (int i = 0; i < turns; ++i) {
      pair.prefills.Turn();
      pair.decodes.Turn();
    }
    for (WorkerBench* bench : {&pair.prefills, &pair.decodes}) {
      bench->core->ClearCache(std::nullopt);
      bench->Resize(40);
    }
    pair.Run();
    ExpectAnswer(pair, asked);
    pair.ExpectAllBlocksHome();
    for (WorkerBench* bench : {&pair.prefills, &pair.decodes}) bench->Resize(100);
    Ask(pair, ThreeChunks({}));
  }
}

// A prefill worker pulls what only the decode worker has. Then it computes the question alone.
TEST(WorkerCoreChunkHandOff, PulledChunksAreNotComputed) {
  for (const ChunkOptions mode : EveryMode()) {
    for (const int32_t block_size : {1, 4, 16}) {
      ChunkPair pair(Blocks(block_size), Blocks(4));
      const ChunkedPrompt prompt = ThreeChunks(mode);
      const auto local = pair.decodes.Generate(ChunkedRequest(prompt, kAnswer));
      pair.decodes.Run();
      ASSERT_TRUE(local->finish.has_value());
      const ChunkPair::PairedPull pull = pair.Pull(pair.prefills, prompt);
      pair.Run();
      ASSERT_TRUE(pull.record->done.has_value() && pull.record->done->ok())
          << pull.record->done->status();
      EXPECT_EQ((*pull.record->done)->pulled_tokens, 13 + 24 + 5);
      EXPECT_GT((*pull.record->done)->kv_bytes, 0);
      ChunkedPrompt other = prompt;
      std::swap(other.chunks[0], other.chunks[1]);
      other.question = Bytes("Something else?");
      const PairedRequest asked = Ask(pair, other);
      EXPECT_EQ(asked.record->finish->ledger.chunk.hits, 3);
      EXPECT_EQ(asked.record->finish->ledger.computed_tokens, 9 + 15) << "system part, question";
    }
  }
}

TEST(WorkerCoreChunkHandOff, BadPullsOfChunksAreRefusedByField) {
  ChunkPair pair;
  ChunkedPrompt prompt = ThreeChunks({});
  prompt.chunks[1].clear();
  const auto empty = pair.Pull(pair.prefills, prompt);
  EXPECT_EQ(empty.record->done->status().code(), absl::StatusCode::kInvalidArgument);
  prompt = ThreeChunks({});
  prompt.chunks[1].assign(130, 'x');
  const auto longer = pair.Pull(pair.prefills, prompt);
  EXPECT_THAT(std::string(longer.record->done->status().message()), HasSubstr("reaches position"));
  const absl::Status sent =
      pair.prefills.core->SendPrefix(77, {.tokens = {}, .ticket = {}, .chunked = prompt}).status();
  EXPECT_EQ(sent.code(), absl::StatusCode::kInvalidArgument);
  pair.ExpectAllBlocksHome();
}

TEST(WorkerCoreChunkHandOff, ContiguousWorkersHandOverToo) {
  for (const ChunkOptions mode : EveryMode()) {
    const BenchOptions contiguous{.num_blocks = 128, .prefix_cache = false, .paged = false};
    for (const bool decodes : {false, true}) {
      ChunkPair pair(decodes ? BenchOptions{} : contiguous, decodes ? contiguous : BenchOptions{});
      Ask(pair, ThreeChunks(mode));
      Ask(pair, ThreeChunks(mode));
      EXPECT_EQ(pair.decodes.core->counters().prefill_tokens, 0);
    }
  }
}

}  // namespace
}  // namespace baton
