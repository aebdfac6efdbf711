// Contract tests of KvTransport (kvtransfer/transport.h), run with every transport: transfers of a
// model with several KV groups. A literal model that knows only tokens and layers gives the
// expected bytes.

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvtransfer/transport.h"
#include "tests/kvtransfer/transport_contract.h"

namespace baton {
namespace {

using ::testing::HasSubstr;
using Kind = TransferEvent::Kind;

constexpr char kTwoGroups[] = "wwfwf";
constexpr char kThreeGroups[] = "wvfvw";  // "v" has one plane

TestShape Shape(const std::string& groups, int32_t block_size, KvLayoutKind layout) {
  return {.layout = layout,
          .block_size = block_size,
          .num_blocks = 512 / block_size,
          .groups = groups,
          .window = 24,
          .window_blocks = 256 / block_size};
}
TestShape Shape(const std::string& groups) { return Shape(groups, 4, KvLayoutKind::kBlockMajor); }

std::byte Value(uint64_t key, int32_t token, const Piece& piece, int64_t i) {
  return static_cast<std::byte>(
      (key * 131 + token * 29 + piece.layer * 17 + piece.plane * 5 + i * 7) % 239);
}

struct Prompt {
  int32_t tokens = 0;
  int32_t first_block = 0;                   // that the receiver lacks
  std::vector<int32_t> window_first_blocks;  // same for each window
  int32_t chunk = 1;                         // blocks announced at a time
  int32_t sent_blocks = INT32_MAX;           // with fewer blocks, the sender ends early
  int32_t whole_blocks = INT32_MAX;          // the rest goes in slices of layers
  std::vector<int32_t> layers = {};          // layer counts, announced one after the other
};

class TransportGroupsContract : public TransportContract {
 protected:
  // One side's blocks in the literal model.
  struct Rows {
    std::vector<BlockId> ids;
    int32_t first_token = 0;
  };

  // Returns true if the receiver needs this token of the group.
  static bool Needs(const TestWorker& to, const Prompt& prompt, int32_t group, int32_t token) {
    const int32_t ours = to.layout().block_size();
    const int32_t first = group == 0 ? prompt.first_block
                                     : prompt.window_first_blocks[static_cast<size_t>(group) - 1];
    if (token < first * ours || token >= prompt.tokens) return false;
    return group == 0 || token > prompt.tokens - to.layout().group(group).group().window;
  }
  static bool NeedsAny(const TestWorker& to, const Prompt& prompt, int32_t group, int32_t begin,
                       int32_t tokens) {
    for (int32_t token = begin; token < begin + tokens; ++token) {
      if (Needs(to, prompt, group, token)) return true;
    }
    return false;
  }

  // Draws random blocks for `count` blocks of the sequence, from `first` on.
  Rows Draw(TestWorker& worker, const TestWorker& to, const Prompt& prompt, int32_t first,
            int32_t count) {
    const KvPoolLayout& layout = worker.layout();
    const int32_t size = layout.block_size();
    Rows rows{.ids = std::vector<BlockId>(static_cast<size_t>(count * layout.groups()), kNoBlock),
              .first_token = first * size};
    for (int32_t group = 0; group < layout.groups(); ++group) {
      std::vector<BlockId> free =
          MakeBlocks(0, static_cast<int32_t>(layout.group(group).num_blocks()));
      std::shuffle(free.begin(), free.end(), random_);
      for (int32_t i = 0; i < count; ++i) {
        if (!NeedsAny(to, prompt, group, (first + i) * size, size)) continue;
        rows.ids[static_cast<size_t>(i * layout.groups() + group)] = free.back();
        free.pop_back();
      }
    }
    return rows;
  }

  // Writes tokens [begin, end) of a group's blocks, in the given layers.
  static void Fill(TestWorker& worker, const Rows& rows, int32_t group, int32_t begin, int32_t end,
                   uint64_t key, LayerRange layers = {}) {
    const KvPoolLayout& layout = worker.layout();
    GroupSet one;
    one.Add(group);
    for (int32_t token = std::max(begin, rows.first_token); token < end; ++token) {
      const int32_t index = (token - rows.first_token) / layout.block_size();
      const auto at = static_cast<size_t>(index * layout.groups() + group);
      if (at >= rows.ids.size() || rows.ids[at] == kNoBlock) continue;
      for (const Piece piece : Pieces(layout, one, layers)) {
        const int64_t row = PieceValidBytes(layout, piece, 1);
        std::byte* const bytes =
            worker.pool().data() +
            layout.PieceOffset(piece.layer, piece.plane, rows.ids[at].value()) +
            row * (token % layout.block_size());
        for (int64_t i = 0; i < row; ++i) bytes[i] = Value(key, token, piece, i);
      }
    }
  }

  // Runs one transfer and compares the receiver's whole pool with the model.
  void Transfer(TestWorker& from, TestWorker& to, uint64_t id, const Prompt& prompt) {
    const int32_t theirs = from.layout().block_size();
    const int32_t ours = to.layout().block_size();
    const int32_t groups = to.layout().groups();
    const int32_t needed = BlocksForTokens(ours, prompt.tokens) - prompt.first_block;
    const Rows target = Draw(to, to, prompt, prompt.first_block, needed);
    const ReceiveSpec spec{.transfer_id = id,
                           .first_block = prompt.first_block,
                           .window_first_blocks = prompt.window_first_blocks,
                           .blocks = target.ids,
                           .tokens = prompt.tokens,
                           .may_end_early = prompt.sent_blocks != INT32_MAX};
    const SequenceBlocks range = BlocksHolding(target.first_token, prompt.tokens, theirs);
    const int32_t count = std::min(range.count, prompt.sent_blocks);
    const int32_t end = std::min(prompt.tokens, (range.first + count) * theirs);
    const Rows source = Draw(from, to, prompt, range.first, count);
    std::memset(from.pool().data(), 0x11, from.pool().size());
    std::memset(to.pool().data(), 0xEE, to.pool().size());
    const int32_t whole = std::min(count, prompt.whole_blocks);
    const int32_t whole_end = std::min(end, (range.first + whole) * theirs);
    for (int32_t group = 0; group < groups; ++group) {
      Fill(from, source, group, 0, whole == count ? end : whole_end, id);
    }

    ASSERT_TRUE(to.transport().Expect(spec).ok());
    ASSERT_TRUE(from.transport()
                    .StartSend({.sender_transfer = id + 7000,
                                .ticket = to.Ticket(spec),
                                .tokens = prompt.tokens,
                                .may_end_early = spec.may_end_early})
                    .ok());
    const auto rows = [&](int32_t at, int32_t n) {
      return std::span(source.ids)
          .subspan(static_cast<size_t>(at * groups), static_cast<size_t>(n * groups));
    };
    for (int32_t at = 0; at < whole; at += prompt.chunk) {
      const int32_t n = std::min(prompt.chunk, whole - at);
      if (at + n == count) break;
      from.transport().Announce(id + 7000, rows(at, n), /*final=*/false, "");
    }
    int32_t last = count == 0 ? 0 : (count - 1) / prompt.chunk * prompt.chunk;
    if (whole < count) {
      last = whole;
      int32_t written = 0;
      const auto write_up_to = [&](int32_t layer) {
        for (int32_t group = 0; group < groups && layer > written; ++group) {
          Fill(from, source, group, whole_end, end, id,
               {.first = written, .count = layer - written});
        }
        written = layer;
      };
      for (const int32_t layer : prompt.layers) {
        write_up_to(layer);
        from.transport().AnnounceLayers(id + 7000, rows(whole, count - whole), layer);
      }
      write_up_to(from.layout().layers());
    }
    from.transport().Announce(id + 7000, rows(last, count - last), /*final=*/true, "manifest");
    const TransferEvent received = to.WaitReceived(id);
    ASSERT_EQ(received.kind, Kind::kReceived) << received.status;
    EXPECT_EQ(received.manifest, "manifest");
    EXPECT_EQ(received.blocks_done,
              end == prompt.tokens ? needed : std::max(0, end / ours - prompt.first_block));
    const TransferEvent sent = from.WaitSent(id + 7000);
    EXPECT_EQ(sent.kind, Kind::kSent) << sent.status;
    EXPECT_EQ(sent.blocks_done, count);

    // A group's payload begins with the sender's first block that holds a needed token.
    const std::vector<std::byte> got(to.pool().data(), to.pool().data() + to.pool().size());
    std::memset(to.pool().data(), 0xEE, to.pool().size());
    int64_t bytes = 0;
    for (int32_t group = 0; group < groups; ++group) {
      GroupSet one;
      one.Add(group);
      for (int32_t block = range.first; block < range.first + count; ++block) {
        if (!NeedsAny(to, prompt, group, block * theirs, theirs)) continue;
        const int32_t block_end = std::min((block + 1) * theirs, end);
        Fill(to, target, group, block * theirs, block_end, id);
        bytes += BlockValidBytes(from.layout(), block_end - block * theirs, {}, one);
      }
    }
    EXPECT_EQ(received.bytes, bytes);
    EXPECT_EQ(sent.bytes, bytes);
    ASSERT_EQ(std::memcmp(got.data(), to.pool().data(), got.size()), 0);
  }

  // Draws a random valid prompt for a receiver with this block size.
  Prompt DrawPrompt(const TestWorker& to) {
    const auto draw = [&](int32_t low, int32_t high) {
      return low + static_cast<int32_t>(random_() % static_cast<uint32_t>(high - low + 1));
    };
    Prompt prompt{.tokens = draw(1, 90), .window_first_blocks = {}, .chunk = draw(1, 9)};
    const int32_t blocks = BlocksForTokens(to.layout().block_size(), prompt.tokens);
    prompt.first_block = draw(0, 2) == 0 ? 0 : draw(0, blocks);
    for (int32_t group = 1; group < to.layout().groups(); ++group) {
      prompt.window_first_blocks.push_back(draw(0, 1) == 0 ? prompt.first_block
                                                           : draw(prompt.first_block, blocks));
    }
    if (draw(0, 3) == 0) {
      prompt.sent_blocks = draw(0, 20);
    } else if (draw(0, 1) == 0) {
      prompt.whole_blocks = draw(0, 6);
      for (int32_t layer = 1; layer <= to.layout().layers(); ++layer) {
        if (draw(0, 1) == 0) prompt.layers.push_back(layer);
      }
    }
    return prompt;
  }

  std::mt19937 random_{kSeed};
  static constexpr uint32_t kSeed = 31;
};

INSTANTIATE_TEST_SUITE_P(Each, TransportGroupsContract, EveryMedium(), MediumName);

TEST_P(TransportGroupsContract, CarriesTheWindowAtTheEndAlone) {
  TestWorker a(Factory(), Shape(kTwoGroups), 1), b(Factory(), Shape(kTwoGroups), 2);
  Transfer(a, b, 1, {.tokens = 61, .window_first_blocks = {0}, .chunk = 16});
  EXPECT_LT(b.events().back().bytes, BlockValidBytes(a.layout(), 61));
  Transfer(a, b, 2, {.tokens = 10, .window_first_blocks = {0}});  // the window holds all of it
  EXPECT_EQ(b.events().back().bytes, BlockValidBytes(a.layout(), 10));
}

TEST_P(TransportGroupsContract, AReceiverGetsOnlyWhatItLacksOfEachGroup) {
  TestWorker a(Factory(), Shape(kThreeGroups), 1), b(Factory(), Shape(kThreeGroups), 2);
  Transfer(a, b, 1, {.tokens = 61, .first_block = 3, .window_first_blocks = {12, 3}, .chunk = 2});
  Transfer(a, b, 2, {.tokens = 61, .first_block = 3, .window_first_blocks = {16, 16}});
  Transfer(a, b, 3, {.tokens = 61, .first_block = 16, .window_first_blocks = {16, 16}});
}

TEST_P(TransportGroupsContract, ASliceOfLayersMayHaveNothingOfABlock) {
  TestWorker a(Factory(), Shape(kTwoGroups), 1), b(Factory(), Shape(kTwoGroups), 2);
  Transfer(a, b, 1,
           {.tokens = 62,
            .window_first_blocks = {0},
            .chunk = 16,
            .whole_blocks = 2,
            .layers = {1, 2, 3, 4, 5}});
}

// Many combinations of block sizes, in both layouts. The sender's blocks are never the smaller
// ones.
TEST_P(TransportGroupsContract, CarriesAnyRequestedBlocksBetweenDifferentBlockSizes) {
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed);
  uint64_t id = 1;
  for (const auto& [theirs, ours] : {std::pair{4, 4}, {16, 4}, {32, 2}, {16, 16}}) {
    for (const char* groups : {kTwoGroups, kThreeGroups}) {
      TestWorker a(Factory(), Shape(groups, theirs, KvLayoutKind::kLayerMajor), 1);
      TestWorker b(Factory(), Shape(groups, ours, KvLayoutKind::kBlockMajor), 2);
      for (int32_t round = 0; round < 8; ++round, id += 2) {
        const Prompt there = DrawPrompt(b);
        const Prompt back = DrawPrompt(a);
        SCOPED_TRACE(::testing::Message()
                     << "transfer " << id << ", blocks of " << theirs << " and " << ours);
        ASSERT_NO_FATAL_FAILURE(Transfer(a, b, id, there));
        if (theirs == ours) {
          ASSERT_NO_FATAL_FAILURE(Transfer(b, a, id + 1, back));
        }
      }
    }
  }
}

// The engine reports full blocks for each group separately. If a byte changes after that, the
// receiver detects it, and its message names the layer.
TEST_P(TransportGroupsContract, ADamagedPieceOfAWindowIsNamed) {
  TestWorker a(Factory(), Shape(kTwoGroups), 1), b(Factory(), Shape(kTwoGroups), 2);
  const std::vector<BlockId> rows = {BlockId(3), BlockId(5), BlockId(4), BlockId(9)};
  for (size_t at = 0; at < rows.size(); at += 2) {
    a.FillBlock(GroupBlocks(std::span(rows).subspan(at, 2)), at);
  }
  a.transport().Written(std::vector{BlockId(3), BlockId(4)}, {}, /*group=*/0);
  a.transport().Written(std::vector{BlockId(5), BlockId(9)}, {}, /*group=*/1);
  const auto move = [&](uint64_t id) {
    const ReceiveSpec spec{.transfer_id = id,
                           .window_first_blocks = {0},
                           .blocks = {BlockId(1), BlockId(7), BlockId(2), BlockId(8)},
                           .tokens = 8};
    EXPECT_TRUE(b.transport().Expect(spec).ok());
    EXPECT_TRUE(a.transport()
                    .StartSend({.sender_transfer = id, .ticket = b.Ticket(spec), .tokens = 8})
                    .ok());
    a.transport().Announce(id, rows, /*final=*/true, "");
    a.WaitSent(id);
    return b.WaitReceived(id);
  };
  EXPECT_EQ(move(1).kind, Kind::kReceived);
  EXPECT_EQ(b.Differences(GroupBlocks(std::vector{BlockId(2), BlockId(8)}), 2, 4), 0);
  a.pool().data()[a.layout().PieceOffset(3, 1, 9)] ^= std::byte{1};
  const TransferEvent damaged = move(2);
  EXPECT_EQ(damaged.status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(damaged.status.message()), HasSubstr("block 1 layer 3 V"));
  a.transport().Written({}, std::vector{BlockId(9)}, /*group=*/1);  // the change is reported
  EXPECT_EQ(move(3).kind, Kind::kReceived);
}

TEST_P(TransportGroupsContract, CancelledMidwayItEndsOnceAndTheNextIsRight) {
  TestWorker a(Factory(), Shape(kTwoGroups), 1), b(Factory(), Shape(kTwoGroups), 2);
  for (uint64_t id = 1; id <= 6; ++id) {
    const Prompt prompt{.tokens = 61, .window_first_blocks = {0}};
    const Rows target = Draw(b, b, prompt, 0, 16);
    const Rows source = Draw(a, b, prompt, 0, 16);
    const ReceiveSpec spec{
        .transfer_id = id, .window_first_blocks = {0}, .blocks = target.ids, .tokens = 61};
    ASSERT_TRUE(b.transport().Expect(spec).ok());
    ASSERT_TRUE(
        a.transport()
            .StartSend({.sender_transfer = id + 7000, .ticket = b.Ticket(spec), .tokens = 61})
            .ok());
    a.transport().Announce(id + 7000, std::span(source.ids).first(24), /*final=*/false, "");
    b.WaitFor(id, Kind::kReceiving);
    a.transport().AnnounceLayers(id + 7000, std::span(source.ids).subspan(24), 2);
    if (id % 2 == 0) {
      a.transport().CancelSend(id + 7000);
    } else {
      b.transport().CancelReceive(id);
    }
    EXPECT_EQ(b.WaitReceived(id).kind, Kind::kReceiveFailed);
    EXPECT_EQ(a.WaitSent(id + 7000).kind, Kind::kSendFailed);
    EXPECT_EQ(b.TerminalEvents(id, true), 1);
    Transfer(a, b, id + 100, {.tokens = 61, .window_first_blocks = {2}, .chunk = 3});
  }
}

}  // namespace
}  // namespace baton
