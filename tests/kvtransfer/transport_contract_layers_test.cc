// Contract tests of KvTransport (kvtransfer/transport.h), run with every transport: blocks
// announced layer by layer while their later layers are still written.

#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvtransfer/transport.h"
#include "tests/kvtransfer/transport_contract.h"

namespace baton {
namespace {

using Kind = TransferEvent::Kind;

class TransportLayersContract : public TransportContract {
 protected:
  struct Plan {
    int32_t tokens = 0;  // of the sequence
    // First token that the receiver lacks, at the start of one of its blocks.
    int32_t first_token = 0;
    int32_t whole = 0;  // sender blocks announced before any layer
    std::vector<int32_t> layers;
  };

  // Writes one layer of a sequence's tokens, with bytes that only (token, piece, byte) determine.
  static void WriteLayer(TestWorker& worker, std::span<const BlockId> blocks, int32_t first_token,
                         int32_t tokens, int32_t layer) {
    ForEachByte(worker, blocks, first_token, tokens, layer,
                [](std::byte& at, std::byte right) { at = right; });
  }
  static int64_t WrongBytes(TestWorker& worker, std::span<const BlockId> blocks,
                            int32_t first_token, int32_t tokens) {
    int64_t wrong = 0;
    for (int32_t layer = 0; layer < worker.layout().layers(); ++layer) {
      ForEachByte(worker, blocks, first_token, tokens, layer,
                  [&](const std::byte& at, std::byte right) { wrong += at != right; });
    }
    return wrong;
  }

  template <typename F>
  static void ForEachByte(TestWorker& worker, std::span<const BlockId> blocks, int32_t first_token,
                          int32_t tokens, int32_t layer, const F& f) {
    const KvPoolLayout& layout = worker.layout();
    const int64_t bytes = PieceValidBytes(layout, {}, 1);
    for (int32_t token = first_token; token < tokens; ++token) {
      const int32_t index = (token - first_token) / layout.block_size();
      const int32_t slot = (token - first_token) % layout.block_size();
      for (const bool value : {false, true}) {
        std::byte* const at =
            worker.pool().data() +
            layout.PieceOffset(layer, value, blocks[static_cast<size_t>(index)].value()) +
            slot * bytes;
        for (int64_t i = 0; i < bytes; ++i) {
          f(at[i], static_cast<std::byte>((token * 31 + layer * 7 + (value ? 3 : 0) + i) % 251));
        }
      }
    }
  }

  // Announces as planned, each layer as soon as it is written, and compares the arrived bytes.
  void Transfer(TestWorker& from, TestWorker& to, uint64_t id, const Plan& plan) {
    const int32_t ours = to.layout().block_size();
    const int32_t theirs = from.layout().block_size();
    const ReceiveSpec spec{
        .transfer_id = id,
        .first_block = plan.first_token / ours,
        .blocks = MakeBlocks(1, BlocksForTokens(ours, plan.tokens) - plan.first_token / ours),
        .tokens = plan.tokens};
    ASSERT_TRUE(to.transport().Expect(spec).ok());
    const int64_t by_nccl = medium() == Medium::kNccl ? TheFakeNccl().sides[1].bytes.load() : 0;
    const SequenceBlocks sent = BlocksHolding(plan.first_token, plan.tokens, theirs);
    const std::vector<BlockId> source =
        MakeBlocks(static_cast<int32_t>(from.layout().group(0).num_blocks()) - 1, sent.count, -1);
    const int32_t begin = sent.first * theirs;
    const int32_t layers = from.layout().layers();
    for (const BlockId block : source) from.FillRaw(block, std::byte{0xAA});
    const std::span rest = std::span(source).subspan(static_cast<size_t>(plan.whole));
    const int32_t rest_begin = begin + plan.whole * theirs;
    for (int32_t layer = 0; layer < layers; ++layer) {
      WriteLayer(from, source, begin, std::min(plan.tokens, rest_begin), layer);
    }
    ASSERT_TRUE(
        from.transport()
            .StartSend(
                {.sender_transfer = id + 7000, .ticket = to.Ticket(spec), .tokens = plan.tokens})
            .ok());
    const auto whole = std::span(source).first(static_cast<size_t>(plan.whole));
    if (!whole.empty()) from.transport().Announce(id + 7000, whole, /*final=*/false, "");
    int32_t written = 0;
    const auto write_up_to = [&](int32_t end) {
      for (; written < end; ++written) WriteLayer(from, rest, rest_begin, plan.tokens, written);
    };
    for (const int32_t end : plan.layers) {
      write_up_to(end);
      from.transport().AnnounceLayers(id + 7000, rest, end);
    }
    write_up_to(layers);
    from.transport().Announce(id + 7000, rest, /*final=*/true, "manifest");
    const TransferEvent received = to.WaitReceived(id);
    ASSERT_EQ(received.kind, Kind::kReceived) << received.status;
    EXPECT_EQ(received.manifest, "manifest");
    EXPECT_EQ(received.blocks_done, static_cast<int32_t>(spec.blocks.size()));
    EXPECT_EQ(WrongBytes(to, spec.blocks, plan.first_token, plan.tokens), 0);
    const TransferEvent done = from.WaitSent(id + 7000);
    EXPECT_EQ(done.kind, Kind::kSent) << done.status;
    EXPECT_EQ(done.bytes, received.bytes);
    if (medium() == Medium::kNccl && ours == theirs) {
      EXPECT_GE(TheFakeNccl().sides[1].bytes, by_nccl + done.bytes);
    }
    EXPECT_EQ(done.bytes, (plan.tokens - begin) * PieceValidBytes(from.layout(), {}, 1) *
                              PieceCount(from.layout()));
  }
};

INSTANTIATE_TEST_SUITE_P(Each, TransportLayersContract, EveryMedium(), MediumName);

TEST_P(TransportLayersContract, CarriesALastChunkLayerByLayer) {
  TestWorker a(Factory(), {}, 1), b(Factory(), {}, 2);
  Transfer(a, b, 1, {.tokens = 16 * 8 + 5, .first_token = 0, .whole = 3, .layers = {1, 2, 3}});
}

TEST_P(TransportLayersContract, CarriesASequenceOfOneChunk) {
  TestWorker a(Factory(), {}, 1), b(Factory(), {}, 2);
  Transfer(a, b, 1, {.tokens = 16 * 4, .first_token = 0, .whole = 0, .layers = {2}});
  Transfer(a, b, 2, {.tokens = 16 * 4 + 1, .first_token = 32, .whole = 0, .layers = {1, 3}});
  Transfer(a, b, 3, {.tokens = 7, .first_token = 0, .whole = 0, .layers = {3}});
}

// Many combinations of block sizes in both layouts, and receivers that already have a prefix.
TEST_P(TransportLayersContract, CarriesAnyAnnouncementsBetweenDifferentBlockSizes) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const auto pick = [&](int32_t low, int32_t high) {
    return low + static_cast<int32_t>(random() % static_cast<uint32_t>(high - low + 1));
  };
  for (int pair = 0; pair < 6; ++pair) {
    const auto shape = [&] {
      return TestShape{
          .layout = pick(0, 1) == 0 ? KvLayoutKind::kBlockMajor : KvLayoutKind::kLayerMajor,
          .block_size = 1 << pick(2, 5),
          .num_blocks = 64,
          .layers = 5};
    };
    TestWorker a(Factory(), shape(), 1), b(Factory(), shape(), 2);
    for (uint64_t id = 1; id <= 5; ++id) {
      Plan plan{.tokens = pick(1, 150), .first_token = 0, .whole = 0, .layers = {}};
      const int32_t ours = b.layout().block_size();
      plan.first_token = pick(0, (plan.tokens - 1) / ours) * ours;
      const int32_t theirs = a.layout().block_size();
      const int32_t sent = BlocksHolding(plan.first_token, plan.tokens, theirs).count;
      plan.whole = pick(0, sent - 1);
      for (int32_t layers = pick(1, 5); layers <= 5; layers += pick(1, 3)) {
        plan.layers.push_back(layers);
      }
      Transfer(a, b, id, plan);
    }
  }
}

TEST_P(TransportLayersContract, ASenderThatStopsBetweenTwoLayersLeavesOnlyWholeBlocksDone) {
  TestWorker a(Factory(), {}, 1), b(Factory(), {}, 2);
  const ReceiveSpec spec{.transfer_id = 4, .blocks = MakeBlocks(1, 5), .tokens = 80};
  ASSERT_TRUE(b.transport().Expect(spec).ok());
  const std::vector<BlockId> source = MakeBlocks(20, 5);
  for (int32_t i = 0; i < 5; ++i) a.FillBlock(source[i], 40 + i);
  ASSERT_TRUE(
      a.transport().StartSend({.sender_transfer = 9, .ticket = b.Ticket(spec), .tokens = 80}).ok());
  a.transport().Announce(9, std::span(source).first(1), /*final=*/false, "");
  b.WaitFor(4, Kind::kReceiving);
  a.transport().AnnounceLayers(9, std::span(source).subspan(1), 1);
  a.transport().AnnounceLayers(9, std::span(source).subspan(1), 2);
  a.transport().CancelSend(9);
  EXPECT_EQ(a.WaitSent(9).status.code(), absl::StatusCode::kCancelled);
  const TransferEvent failed = b.WaitReceived(4);
  EXPECT_EQ(failed.kind, Kind::kReceiveFailed);
  EXPECT_EQ(failed.blocks_done, 1);
  EXPECT_EQ(b.Differences(spec.blocks[0], 40, 16), 0);
}

TEST_P(TransportLayersContract, InvalidLayersFailTheTransfer) {
  TestWorker a(Factory(), {}, 1), b(Factory(), {}, 2);
  const std::vector<BlockId> source = MakeBlocks(20, 5);
  uint64_t id = 1;
  const auto fails = [&](const auto& announce, bool may_end_early = false) {
    const ReceiveSpec spec{.transfer_id = id,
                           .blocks = MakeBlocks(1, 5),
                           .tokens = 80,
                           .may_end_early = may_end_early};
    ASSERT_TRUE(b.transport().Expect(spec).ok());
    ASSERT_TRUE(a.transport()
                    .StartSend({.sender_transfer = id,
                                .ticket = b.Ticket(spec),
                                .tokens = 80,
                                .may_end_early = may_end_early})
                    .ok());
    announce(id);
    EXPECT_EQ(a.WaitSent(id).status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(b.WaitReceived(id).kind, Kind::kReceiveFailed);
    ++id;
  };
  KvTransport& t = a.transport();
  fails([&](uint64_t send) { t.AnnounceLayers(send, source, 0); });
  fails([&](uint64_t send) { t.AnnounceLayers(send, source, 4); });
  fails([&](uint64_t send) { t.AnnounceLayers(send, std::span(source).first(4), 1); });
  fails([&](uint64_t send) { t.AnnounceLayers(send, MakeBlocks(62, 5), 1); });
  fails([&](uint64_t send) { t.AnnounceLayers(send, source, 1); }, /*may_end_early=*/true);
  fails([&](uint64_t send) {
    t.AnnounceLayers(send, source, 2);
    t.AnnounceLayers(send, source, 1);
  });
  fails([&](uint64_t send) {
    t.AnnounceLayers(send, source, 2);
    t.Announce(send, MakeBlocks(21, 5), /*final=*/true, "");
  });
}

}  // namespace
}  // namespace baton
