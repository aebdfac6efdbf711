// Sending KV that this worker computes for a peer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/worker_core.h"
#include "tests/engine/worker_bench.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

// The fake checks that announced blocks are unchanged since they were reported as full.
TEST(WorkerCoreSend, BlocksAreReportedWhenTheyFillAndWhenTheyAreRewritten) {
  WorkerBench bench;
  bench.Generate(Bytes("0123"), 1);
  bench.Run();
  EXPECT_EQ(bench.fake.reported_full(), 1u);
  bench.Generate(Bytes("01"), 3);  // fills its block with the first two of its own tokens
  bench.Run();
  EXPECT_EQ(bench.fake.reported_full(), 2u);
  bench.Generate(Bytes("abcdefghij"), 1);
  bench.Run();
  EXPECT_EQ(bench.fake.reported_full(), 4u);
  bench.ExpectAllBlocksHome();
}

TEST(WorkerCoreSend, AnnouncesTheMissingBlocksChunkByChunk) {
  WorkerBench bench({.max_chunk_tokens = 8});
  const auto prompt = Bytes("0123456789abcdefghi");  // 5 blocks, the last part full
  const auto record = bench.Prefill(prompt, bench.Ticket(prompt.size(), 1));
  std::vector<size_t> announced;
  for (int i = 0; i < 3; ++i) {
    bench.Turn();
    announced.push_back(bench.fake.sends[1].blocks.size());
  }
  EXPECT_THAT(announced, ::testing::ElementsAre(1, 3, 4));
  EXPECT_TRUE(bench.fake.sends[1].final);
  EXPECT_EQ(bench.fake.sends[1].spec.tokens, 19);
  EXPECT_FALSE(record->done.has_value()) << "it ends only when the receiver has everything";
  const auto manifest = DecodeManifest(bench.fake.sends[1].manifest, kFakeVocabulary);
  ASSERT_TRUE(manifest.ok());
  EXPECT_EQ(manifest->drawn.at(0).token, bench.runner.Continuation(prompt, 1)[0]);
  EXPECT_EQ(manifest->prefill.chunks, 3);
  EXPECT_EQ(manifest->prefill.computed_tokens, 19);
  EXPECT_EQ(bench.cache.blocks_in_transfer(), 4);
  bench.fake.EndSend(1, absl::OkStatus());
  bench.Run();
  ASSERT_TRUE(record->done.has_value() && record->done->ok());
  EXPECT_EQ((*record->done)->kv_bytes, 1000);
  EXPECT_EQ((*record->done)->kv_exposed_us, 4);
  EXPECT_EQ((*record->done)->chunks, 3);
  bench.ExpectAllBlocksHome();
}

TEST(WorkerCoreSend, LayersOfTheLastChunkAreAnnouncedWhileOthersAreComputed) {
  WorkerBench bench({.max_chunk_tokens = 8, .layer_pieces = kFakeLayers});
  const auto prompt = Bytes("0123456789abcdefghi");  // 5 blocks, the last part full
  const auto record = bench.Prefill(prompt, bench.Ticket(prompt.size(), 1));
  const FakeTransport::Send& send = bench.fake.sends[1];
  std::vector<int32_t> in_transfer;
  bench.fake.after_layers = [&] { in_transfer.push_back(bench.cache.blocks_in_transfer()); };
  bench.Turn();
  bench.Turn();
  EXPECT_TRUE(send.layers.empty()) << "only the last chunk is cut";
  EXPECT_EQ(send.blocks.size(), 3u);
  bench.Turn();
  EXPECT_THAT(send.layers, ::testing::ElementsAre(1, 2, 3));
  EXPECT_EQ(send.rest.size(), 1u);
  EXPECT_THAT(in_transfer, ::testing::ElementsAre(4, 4, 4)) << "held once, from the first layer on";
  EXPECT_TRUE(send.final);
  EXPECT_EQ(send.blocks.size(), 4u);
  EXPECT_EQ(bench.cache.blocks_in_transfer(), 4);
  bench.fake.EndSend(1, absl::OkStatus());
  bench.Run();
  ASSERT_TRUE(record->done.has_value() && record->done->ok());
  bench.ExpectAllBlocksHome();
}

TEST(WorkerCoreSend, APrefillThatEndsBetweenTwoLayersKeepsItsBlocksUntilTheTransferHasEnded) {
  WorkerBench bench({.layer_pieces = kFakeLayers});
  const auto prompt = Bytes("0123456789abcdefghi");
  const auto record = bench.Prefill(prompt, bench.Ticket(prompt.size()));
  bench.fake.after_layers = [&] {
    if (bench.fake.sends[1].layers.size() == 2) bench.cancels.Add(1);
  };
  bench.Turn();
  EXPECT_THAT(bench.fake.sends[1].layers, ::testing::ElementsAre(1, 2));
  EXPECT_FALSE(bench.fake.sends[1].final);
  EXPECT_EQ(bench.fake.sends[1].cancels, 1);
  ASSERT_TRUE(record->done.has_value());
  EXPECT_EQ(record->done->status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(bench.cache.blocks_in_transfer(), 5);
  bench.fake.EndSend(1, absl::CancelledError("as asked"));
  bench.Run();
  bench.ExpectAllBlocksHome();
}

TEST(WorkerCoreSend, LayersOfAnUnwantedPrefillAreNoLongerAnnounced) {
  WorkerBench bench({.layer_pieces = kFakeLayers});
  const auto wanted_prompt = Bytes("this goes on");
  const auto wanted = bench.Prefill(wanted_prompt, bench.Ticket(wanted_prompt.size()));
  const auto prompt = Bytes("0123456789abcdefghi");
  const auto unwanted = bench.Prefill(prompt, bench.Ticket(prompt.size()));
  bench.fake.after_layers = [&] {
    if (bench.fake.sends[2].layers.size() == 2) bench.cancels.Add(2);
  };
  bench.Turn();
  EXPECT_THAT(bench.fake.sends[1].layers, ::testing::ElementsAre(1, 2, 3));
  EXPECT_TRUE(bench.fake.sends[1].final);
  EXPECT_THAT(bench.fake.sends[2].layers, ::testing::ElementsAre(1, 2));
  EXPECT_FALSE(bench.fake.sends[2].final);
  EXPECT_EQ(bench.fake.sends[2].cancels, 1);
  EXPECT_EQ(unwanted->done->status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(bench.CachedTokens(prompt), 0) << "a partly computed chunk is not cached";
  bench.fake.EndSend(1, absl::OkStatus());
  bench.fake.EndSend(2, absl::CancelledError("as asked"));
  bench.Run();
  EXPECT_TRUE(wanted->done->ok());
  bench.ExpectAllBlocksHome();
}

TEST(WorkerCoreSend, CachedBlocksAreSentBeforeAnythingIsComputed) {
  WorkerBench bench({.max_chunk_tokens = 4});
  bench.Generate(Bytes("0123456789ab"), 1);
  bench.Run();
  const auto prompt = Bytes("0123456789abcdefghijk");
  const auto record = bench.Prefill(prompt, bench.Ticket(prompt.size()));
  bench.Turn();
  EXPECT_EQ(bench.fake.sends[2].blocks.size(), 4u);  // 3 cached, 1 computed
  while (bench.Turn()) continue;
  bench.fake.EndSend(2, absl::OkStatus());
  bench.Run();
  EXPECT_EQ((*record->done)->cached_tokens, 12);
  EXPECT_EQ((*record->done)->computed_tokens, 9);
  bench.ExpectAllBlocksHome();
}

TEST(WorkerCoreSend, DeliveredBlocksStayUntilTheReceiverHasThem) {
  WorkerBench bench({.num_blocks = 5});
  const auto prompt = Bytes("0123456789abcdef");
  const auto record = bench.Prefill(prompt, bench.Ticket(prompt.size()));
  bench.Run();
  EXPECT_EQ(bench.cache.blocks_in_transfer(), 4);
  const auto other = bench.Generate(Bytes("ABCDEFGH"), 2);
  bench.Run();
  EXPECT_TRUE(other->tokens.empty());
  bench.fake.EndSend(1, absl::OkStatus());  // checks the content of the blocks
  bench.Run();
  EXPECT_EQ(other->tokens, bench.runner.Continuation(Bytes("ABCDEFGH"), 2));
  EXPECT_TRUE(record->done->ok());
  bench.ExpectAllBlocksHome();
}

TEST(WorkerCoreSend, ASendThatFailsEndsThePrefillAtAnyMoment) {
  for (int turns = 0; turns < 5; ++turns) {
    WorkerBench bench({.max_chunk_tokens = 4});
    const auto prompt = Bytes("0123456789abc");
    const auto record = bench.Prefill(prompt, bench.Ticket(prompt.size()));
    for (int i = 0; i < turns; ++i) bench.Turn();
    bench.fake.EndSend(1, absl::UnavailableError("refused"));
    bench.Run();
    ASSERT_TRUE(record->done.has_value());
    // Not Unavailable: the receiver is gone, and a router would think that this worker is.
    EXPECT_EQ(record->done->status(), absl::AbortedError("the hand-off failed: refused"));
    bench.ExpectAllBlocksHome();
  }
}

// Otherwise the answer would wait for blocks that the hand-off holds, and the hand-off for free
// blocks.
TEST(WorkerCoreSend, APreemptedPrefillCancelsItsHandOff) {
  WorkerBench bench({.num_blocks = 7, .max_chunk_tokens = 1});
  const auto said = bench.Generate(Bytes("01234567"), 20);  // grows to the whole pool
  while (said->tokens.size() < 3) ASSERT_TRUE(bench.Turn());
  const auto prompt = Bytes("ABCDEFGHIJKL");
  const auto record = bench.Prefill(prompt, bench.Ticket(prompt.size()));
  bench.Run();
  ASSERT_TRUE(record->done.has_value());
  EXPECT_TRUE(absl::IsResourceExhausted(record->done->status())) << record->done->status();
  EXPECT_FALSE(said->ended());
  EXPECT_EQ(bench.fake.sends.at(2).cancels, 1);
  bench.fake.EndSend(2, absl::CancelledError("cancelled"));
  bench.Run();
  EXPECT_EQ(said->tokens, bench.runner.Continuation(Bytes("01234567"), 20));
  bench.ExpectAllBlocksHome();
}

TEST(WorkerCoreSend, CancelEndsThePrefillAtAnyMomentAndHoldsBlocksInFlight) {
  for (int turns = 0; turns < 5; ++turns) {
    WorkerBench bench({.max_chunk_tokens = 4});
    const auto prompt = Bytes("0123456789abc");
    const auto record = bench.Prefill(prompt, bench.Ticket(prompt.size()));
    for (int i = 0; i < turns; ++i) bench.Turn();
    bench.core->Cancel(1);
    EXPECT_EQ(record->done->status().code(), absl::StatusCode::kCancelled);
    EXPECT_EQ(bench.fake.sends[1].cancels, 1);
    EXPECT_EQ(bench.cache.blocks_in_transfer(), std::min(turns, 4));
    bench.Run();
    EXPECT_FALSE(bench.core->idle());
    bench.fake.EndSend(1, absl::CancelledError(""));
    bench.Run();
    bench.ExpectAllBlocksHome();
  }
}

TEST(WorkerCoreSend, ATransportThatRefusesEndsThePrefill) {
  WorkerBench bench;
  bench.fake.next_post = absl::InvalidArgumentError("address");
  const auto record = bench.Prefill(Bytes("0123"), bench.Ticket(4));
  EXPECT_EQ(record->done->status().message(), "address");
  bench.ExpectAllBlocksHome();
}

TEST(WorkerCoreSend, RefusesTicketsThatDoNotFitThePrompt) {
  WorkerBench bench;
  TransferTicket ticket = bench.Ticket(16);
  for (const auto& [first, count] :
       std::vector<std::pair<int32_t, int32_t>>{{0, 3}, {-1, 5}, {1, 4}, {0, -4}, {7, -3}}) {
    ticket.first_block = first;
    ticket.block_count = count;
    const auto record = bench.Prefill(Bytes("0123456789abcdef"), ticket);
    ASSERT_TRUE(record->done.has_value());
    EXPECT_THAT(record->done->status().message(), HasSubstr("fill 4 blocks"));
  }
  EXPECT_FALSE(bench.Prefill({}, ticket)->done->ok());
  EXPECT_TRUE(bench.fake.sends.empty());
  bench.ExpectAllBlocksHome();
}

TEST(WorkerCoreSend, ATicketWithoutATimeoutUsesTheSenders) {
  WorkerBench bench;
  TransferTicket ticket = bench.Ticket(4);
  ticket.timeout_ms = 0;
  bench.Prefill(Bytes("0123"), ticket);
  EXPECT_GT(bench.fake.sends[1].spec.timeout_ms, 0);
  bench.core->Cancel(1);
  bench.fake.EndSend(1, absl::CancelledError(""));
  bench.Run();
}

TEST(WorkerCoreSend, NaNAtTheFirstTokenCancelsTheSend) {
  WorkerBench bench;
  bench.runner.poison = '!';
  const auto record = bench.Prefill(Bytes("012345!"), bench.Ticket(7));
  bench.Run();
  EXPECT_EQ(record->done->status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(bench.fake.sends[1].cancels, 1);
  bench.fake.EndSend(1, absl::CancelledError(""));
  bench.Run();
  bench.ExpectAllBlocksHome();
}

// A growing decode preempts a prefill after its first chunks were announced.
TEST(WorkerCoreSend, APrefillPreemptedBetweenChunksDeliversTheSameBytes) {
  for (const bool prefix_cache : {false, true}) {
    WorkerBench bench(
        {.num_blocks = 12, .token_budget = 5, .max_chunk_tokens = 4, .prefix_cache = prefix_cache});
    const auto grows = bench.Generate(Bytes("AAAAAAA"), 30);
    bench.Turn();
    const auto prompt = Bytes("0123456789abcdefghijklmnopqr");  // 7 blocks
    const auto record = bench.Prefill(prompt, bench.Ticket(prompt.size()));
    // Grow the decode to the pool's end while the prefill is running.
    const auto more = bench.Generate(Bytes("B"), 25);
    for (int i = 0; i < 400 && !bench.fake.sends[2].final; ++i) bench.Turn();
    ASSERT_TRUE(bench.fake.sends[2].final);
    ASSERT_EQ(bench.fake.sends[2].blocks.size(), 7u);
    uint64_t chain = 0;
    for (size_t slot = 0; slot < prompt.size(); ++slot) {
      chain = ChainPool::Chain(chain, prompt[slot]);
      EXPECT_EQ(bench.fake.sends[2].slots[slot / 4][slot % 4], chain) << slot;
    }
    bench.fake.EndSend(2, absl::OkStatus());
    bench.Run();
    EXPECT_TRUE(record->done->ok());
    EXPECT_EQ(grows->tokens, bench.runner.Continuation(Bytes("AAAAAAA"), 30));
    EXPECT_EQ(more->tokens, bench.runner.Continuation(Bytes("B"), 25));
    bench.ExpectAllBlocksHome();
  }
}

// Only a transfer holds blocks. The sequence waits for its end, and the loop has no work before.
TEST(WorkerCoreSend, AFullPoolWaitsWhileATransferHoldsBlocks) {
  WorkerBench bench({.num_blocks = 4});
  const auto prompt = Bytes("01234567");
  const auto record = bench.Prefill(prompt, bench.Ticket(prompt.size()));
  bench.Run();
  const auto grows = bench.Generate(Bytes("abc"), 100);
  bench.Run();
  EXPECT_FALSE(bench.core->has_work());
  EXPECT_FALSE(grows->ended());
  EXPECT_EQ(grows->tokens.size(), 6u);  // 8 slots, and one token after them
  bench.fake.EndSend(1, absl::OkStatus());
  bench.Run();
  EXPECT_TRUE(record->done->ok());
  ASSERT_TRUE(grows->finish.has_value());
  EXPECT_EQ(grows->finish->reason, FinishReason::kLength);
  EXPECT_EQ(grows->tokens, bench.runner.Continuation(Bytes("abc"), 14));
  bench.ExpectAllBlocksHome();
}

}  // namespace
}  // namespace baton
