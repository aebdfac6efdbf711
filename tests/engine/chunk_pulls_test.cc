#include "engine/chunk_pulls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "tests/engine/parts_bench.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ChunkPullsTest : public testing::Test {
 protected:
  // Chunks of 9 and 4 tokens behind a system part of 6, in blocks of 4.
  static ChunkedPrompt Chunks() {
    ChunkedPrompt prompt = PartsBench::TwoChunks();
    prompt.question.clear();
    return prompt;
  }
  std::shared_ptr<PullRecord> Pull(RequestHandle handle, ChunkedPrompt prompt = Chunks(),
                                   ChunkPulls* pulls = nullptr, int32_t spare_blocks = 0) {
    auto record = std::make_shared<PullRecord>();
    (pulls != nullptr ? *pulls : pulls_)
        .Pull(handle,
              {.tokens = {},
               .cache_namespace = CacheNamespace(0),
               .timeout_ms = 70,
               .chunked = std::move(prompt)},
              std::make_shared<RecordingPullSink>(record), spare_blocks);
    return record;
  }
  absl::StatusOr<int32_t> Send(const TransferTicket& ticket, ChunkedPrompt prompt = Chunks()) {
    return pulls_.Send({.tokens = {},
                        .cache_namespace = CacheNamespace(0),
                        .ticket = ticket,
                        .chunked = std::move(prompt)});
  }
  static TransferTicket Ticket() {
    return {.receiver_epoch = Epoch(9),
            .address = "fake:there",
            .timeout_ms = 40,
            .parts = {{.part = 1, .transfer_id = 11, .block_count = 3},
                      {.part = 2, .transfer_id = 12, .block_count = 1}},
            .piece_tokens = 256};
  }
  // Computes the prompt's parts here, so that its chunks are cached.
  void Cache(const ChunkedPrompt& prompt) {
    ASSERT_TRUE(
        bench_.scheduler.Add(bench_.Add(SequenceId(90), prompt, PromptParts::Use::kLocal)).ok());
    while (!bench_.prompt_parts.CreatedFor(SequenceId(90)).empty() ||
           bench_.scheduler.waiting_count() > 0) {
      bench_.StepWithParts();
    }
    bench_.End(SequenceId(90));
  }
  void Deliver(uint64_t id, std::optional<int32_t> blocks = std::nullopt) {
    bench_.transport.Deliver(id, std::vector<TokenId>(9, 'x'), "", blocks);
    EXPECT_TRUE(pulls_.OnEvent(bench_.Poll()));
  }
  void FailReceive(uint64_t id) {
    bench_.transport.FailReceive(id, absl::UnavailableError("lost"));
    EXPECT_TRUE(pulls_.OnEvent(bench_.Poll()));
  }
  void TearDown() override {
    std::vector<BlockId> held;
    pulls_.AppendHeld(held);
    EXPECT_THAT(held, IsEmpty());
    EXPECT_TRUE(pulls_.idle());
    EXPECT_TRUE(bench_.cache.CheckTransferHolds(held).ok());
    EXPECT_TRUE(bench_.cache.CheckConservation().ok()) << bench_.cache.CheckConservation();
    EXPECT_TRUE(bench_.prompt_parts.CheckInvariants().ok());
    EXPECT_EQ(bench_.cache.Stats().blocks.owned, 0);
  }

  PartsBench bench_{/*host_bytes=*/1'000'000};
  ChunkPulls pulls_{{.longest_ms = 60}, &bench_.cache,
                    &bench_.transport,  &bench_.prompt_parts,
                    &bench_.clock,      [this] { return bench_.next_transfer_id++; }};
};

TEST_F(ChunkPullsTest, BringsMissingChunksIntoTheChunkCache) {
  const auto pull = Pull(1);
  ASSERT_TRUE(pull->ticket.has_value());
  EXPECT_EQ(pull->ticket->transfer_id, 0u);
  EXPECT_EQ(pull->ticket->block_count, 0);
  EXPECT_EQ(pull->ticket->block_size, 4);
  EXPECT_EQ(pull->ticket->piece_tokens, 256);
  EXPECT_EQ(pull->ticket->timeout_ms, 60) << "the limit";
  EXPECT_EQ(pull->ticket->receiver_epoch, bench_.transport.epoch());
  EXPECT_THAT(pull->ticket->parts,
              ElementsAre(PartTicket{.part = 1, .transfer_id = 500, .block_count = 3},
                          PartTicket{.part = 2, .transfer_id = 501, .block_count = 1}))
      << "without the system part";
  EXPECT_EQ(bench_.cache.Stats().blocks.in_transfer, 4);
  Deliver(500);
  EXPECT_FALSE(pull->done.has_value());
  EXPECT_EQ(bench_.prompt_parts.Stats().entries, 1);
  Deliver(501);
  ASSERT_TRUE(pull->done.has_value() && pull->done->ok());
  EXPECT_EQ((*pull->done)->tokens, 13);
  EXPECT_EQ((*pull->done)->pulled_tokens, 13);
  EXPECT_EQ((*pull->done)->kv_bytes, 2000);
  EXPECT_EQ(bench_.prompt_parts.Stats().used_blocks, 4);
  EXPECT_EQ(bench_.prompt_parts.Stats().lookups, 0) << "a pull is no lookup";
  const auto again = Pull(2);
  EXPECT_FALSE(again->ticket.has_value());
  EXPECT_EQ((*again->done)->tokens, 13);
  EXPECT_EQ((*again->done)->pulled_tokens, 0);
}

TEST_F(ChunkPullsTest, APartThatDoesNotLandWholeIsNotStored) {
  const auto pull = Pull(1);
  Deliver(500, /*blocks=*/2);  // the source ended early
  FailReceive(501);
  EXPECT_EQ(pull->done->status().code(), absl::StatusCode::kAborted)
      << "unavailable would mean this worker";
  EXPECT_EQ(bench_.prompt_parts.Stats().entries, 0);
}

TEST_F(ChunkPullsTest, APartThatTheSourceLacksEndsThePullWithoutIt) {
  const auto pull = Pull(1);
  Deliver(500);
  Deliver(501, /*blocks=*/0);
  EXPECT_EQ((*pull->done)->tokens, 9);
  EXPECT_EQ((*pull->done)->pulled_tokens, 9);
}

TEST_F(ChunkPullsTest, ASecondPullWaitsForTheFirst) {
  const auto first = Pull(1);
  const auto second = Pull(2);
  EXPECT_FALSE(second->ticket.has_value());
  Deliver(500);
  pulls_.Cancel(1);
  EXPECT_EQ(first->done->status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(bench_.transport.receives.at(501).cancels, 1) << "its ticket may be lost";
  FailReceive(501);
  EXPECT_EQ((*second->done)->tokens, 9);
}

TEST_F(ChunkPullsTest, ACancelledPullKeepsItsBlocksUntilItsTransfersHaveEnded) {
  const auto pull = Pull(1);
  pulls_.Cancel(1);
  pulls_.Cancel(1);
  EXPECT_EQ(bench_.cache.Stats().blocks.in_transfer, 4);
  Deliver(500);
  FailReceive(501);
  EXPECT_EQ(pull->done->status().code(), absl::StatusCode::kCancelled);
}

TEST_F(ChunkPullsTest, ShutdownEndsPullsAndSends) {
  Cache(PartsBench::TwoChunks());
  ASSERT_TRUE(Send(Ticket()).ok());
  ChunkedPrompt other = Chunks();
  other.chunks[0] = Bytes("other");
  const auto pull = Pull(1, other);
  pulls_.Shutdown(absl::CancelledError("over"));
  EXPECT_EQ(pull->done->status().message(), "over");
  FailReceive(pull->ticket->parts[0].transfer_id);
  while (!bench_.transport.sends.empty()) {
    EXPECT_EQ(bench_.transport.sends.begin()->second.cancels, 1);
    bench_.transport.EndSend(bench_.transport.sends.begin()->first, absl::CancelledError("over"));
    EXPECT_TRUE(pulls_.OnEvent(bench_.Poll()));
  }
}

TEST_F(ChunkPullsTest, PartsThatRequestsComputeAreNotPulled) {
  ASSERT_TRUE(
      bench_.scheduler
          .Add(bench_.Add(SequenceId(90), PartsBench::TwoChunks(), PromptParts::Use::kLocal))
          .ok());
  bench_.scheduler.Schedule();  // admitted, not computed
  const auto pull = Pull(1);
  EXPECT_FALSE(pull->ticket.has_value());
  EXPECT_EQ((*pull->done)->tokens, 0);
  bench_.End(SequenceId(90));
}

// A pull and a request bring the same part. The first of them stores it.
TEST_F(ChunkPullsTest, APartThatARequestComputedMeanwhileStaysTheRequests) {
  const auto pull = Pull(1);
  Cache(PartsBench::TwoChunks());
  Deliver(500);
  Deliver(501);
  EXPECT_EQ((*pull->done)->tokens, 13);
  EXPECT_EQ(bench_.prompt_parts.Stats().bypasses, 0);
}

TEST_F(ChunkPullsTest, RefusesWhatDoesNotFit) {
  const auto refusal = [&](ChunkPulls& pulls, const ChunkedPrompt& prompt, int32_t spare = 0) {
    const auto pull = Pull(1, prompt, &pulls, spare);
    EXPECT_FALSE(pull->ticket.has_value());
    return pull->done->status();
  };
  EXPECT_EQ(refusal(pulls_, Chunks(), /*spare=*/30).code(), absl::StatusCode::kResourceExhausted);
  ChunkedPrompt large = Chunks();
  large.chunks = {std::vector<TokenId>(17 * 4, 'x')};
  EXPECT_THAT(std::string(refusal(pulls_, large).message()),
              HasSubstr("17 blocks does not fit the chunk cache of 16"));
  ChunkPulls none({}, &bench_.cache, nullptr, &bench_.prompt_parts, &bench_.clock, nullptr);
  EXPECT_EQ(refusal(none, Chunks()).code(), absl::StatusCode::kFailedPrecondition);
  bench_.transport.next_post = absl::ResourceExhaustedError("full");
  EXPECT_EQ(refusal(pulls_, Chunks()).message(), "full");
}

TEST_F(ChunkPullsTest, PullsWhatFits) {
  ChunkPulls one({.max_transfers = 1}, &bench_.cache, &bench_.transport, &bench_.prompt_parts,
                 &bench_.clock, [this] { return bench_.next_transfer_id++; });
  const auto pull = Pull(1, Chunks(), &one);
  ASSERT_EQ(pull->ticket->parts.size(), 1u);
  bench_.transport.Deliver(500, std::vector<TokenId>(9, 'x'), "");
  EXPECT_TRUE(one.OnEvent(bench_.Poll()));
  EXPECT_EQ((*pull->done)->tokens, 9);
}

TEST_F(ChunkPullsTest, TheSourceSendsWhatItHas) {
  ChunkedPrompt prompt = PartsBench::TwoChunks();
  prompt.chunks.pop_back();
  Cache(prompt);
  const absl::StatusOr<int32_t> sent = Send(Ticket());
  ASSERT_TRUE(sent.ok()) << sent.status();
  EXPECT_EQ(*sent, 9);
  ASSERT_EQ(bench_.transport.sends.size(), 2u);
  const FakeTransport::Send& first = bench_.transport.sends.begin()->second;
  EXPECT_GE(bench_.transport.sends.begin()->first, ChunkPulls::kFirstTransfer);
  EXPECT_EQ(first.spec.ticket.transfer_id, 11u);
  EXPECT_EQ(first.spec.tokens, 9);
  EXPECT_TRUE(first.spec.may_end_early);
  EXPECT_TRUE(first.final);
  EXPECT_EQ(first.blocks.size(), 3u);
  EXPECT_THAT(bench_.transport.sends.rbegin()->second.blocks, IsEmpty()) << "not cached here";
  bench_.prompt_parts.Clear(std::nullopt);
  EXPECT_EQ(bench_.cache.Stats().blocks.in_transfer, 3);
  while (!bench_.transport.sends.empty()) {
    bench_.transport.EndSend(bench_.transport.sends.begin()->first, absl::OkStatus());
    EXPECT_TRUE(pulls_.OnEvent(bench_.Poll()));
  }
}

TEST_F(ChunkPullsTest, TheSourceRefusesByName) {
  EXPECT_EQ(Send(Ticket()).status().code(), absl::StatusCode::kNotFound);
  Cache(PartsBench::TwoChunks());
  TransferTicket ticket = Ticket();
  ticket.parts[1].part = 3;
  EXPECT_THAT(std::string(Send(ticket).status().message()), HasSubstr("names part 3"));
  ticket = Ticket();
  ticket.piece_tokens = 7;
  EXPECT_THAT(std::string(Send(ticket).status().message()), HasSubstr("have 7 tokens"));
  ticket = Ticket();
  ticket.parts = {{.part = 0, .transfer_id = 1, .block_count = 2}};
  EXPECT_EQ(Send(ticket).status().code(), absl::StatusCode::kNotFound) << "a system part";
  ChunkPulls one({.max_transfers = 1}, &bench_.cache, &bench_.transport, &bench_.prompt_parts,
                 &bench_.clock, nullptr);
  EXPECT_EQ(one.Send({.tokens = {}, .ticket = Ticket(), .chunked = Chunks()}).status().code(),
            absl::StatusCode::kResourceExhausted);
  bench_.transport.next_post = absl::InvalidArgumentError("bad address");
  EXPECT_EQ(Send(Ticket()).status().message(), "bad address");
  EXPECT_EQ(bench_.cache.Stats().blocks.in_transfer, 0);
}

// Waking a chunk needs no transfer, and a source does not wake chunks for others.
TEST_F(ChunkPullsTest, AChunkThatSleepsIsNeitherPulledNorSent) {
  Cache(PartsBench::TwoChunks());
  bench_.clock.AdvanceUs(3'600'000'000);
  bench_.prompt_parts.SleepCold();
  const auto falling = Pull(1);
  ASSERT_TRUE(falling->done.has_value());
  EXPECT_EQ((*falling->done)->tokens, 13);
  bench_.mover.EndAll();
  EXPECT_THAT(bench_.tier.Poll(), IsEmpty());
  const auto record = Pull(2);
  ASSERT_TRUE(record->done.has_value()) << "it waits for nothing";
  EXPECT_FALSE(record->ticket.has_value());
  EXPECT_EQ((*record->done)->tokens, 13) << "they are here";
  EXPECT_EQ((*record->done)->pulled_tokens, 0);
  EXPECT_EQ(Send(Ticket()).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace baton
