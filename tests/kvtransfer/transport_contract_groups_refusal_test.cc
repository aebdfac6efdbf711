// Contract tests of KvTransport (kvtransfer/transport.h), run with every transport: refusals for
// models with several KV groups.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvtransfer/transport.h"
#include "tests/kvtransfer/transport_contract.h"

namespace baton {
namespace {

using ::testing::HasSubstr;
using Kind = TransferEvent::Kind;

constexpr char kTwoGroups[] = "wwfwf";
constexpr char kThreeGroups[] = "wvfvw";
constexpr char kTwinWindows[] = "wuf";  // windows of equal geometry

TestShape Shape(const std::string& groups, int32_t block_size = 4) {
  return {.block_size = block_size,
          .num_blocks = 512 / block_size,
          .groups = groups,
          .window_blocks = 256 / block_size};
}

class TransportGroupsRefusal : public TransportContract {
 protected:
  // Returns blocks 0, 1, ... of each group that travels with the sequence's blocks from 0 on.
  static std::vector<BlockId> Rows(const TestWorker& of, const TestWorker& to,
                                   const std::vector<int32_t>& window_first_blocks,
                                   int32_t tokens) {
    const KvPoolLayout& layout = of.layout();
    const MovedTokens moved(/*first_block=*/0, window_first_blocks, tokens,
                            to.layout().block_size(), WindowSizesOf(layout));
    std::vector<BlockId> rows;
    for (int32_t block = 0; block < BlocksForTokens(layout.block_size(), tokens); ++block) {
      const GroupSet groups = moved.GroupsOf(block, layout.block_size());
      for (int32_t group = 0; group < layout.groups(); ++group) {
        rows.push_back(groups.Has(group) ? BlockId(block) : kNoBlock);
      }
    }
    return rows;
  }

  // Runs a whole transfer of `tokens` tokens. The sender's ticket has `told` as
  // window_first_blocks. Returns the final events of the receiver and of the sender.
  std::pair<TransferEvent, TransferEvent> Transfer(TestWorker& from, TestWorker& to, uint64_t id,
                                                   int32_t tokens,
                                                   const std::vector<int32_t>& expected,
                                                   const std::vector<int32_t>& told) {
    const ReceiveSpec spec{.transfer_id = id,
                           .window_first_blocks = expected,
                           .blocks = Rows(to, to, expected, tokens),
                           .tokens = tokens};
    EXPECT_TRUE(to.transport().Expect(spec).ok());
    TransferTicket ticket = to.Ticket(spec);
    ticket.window_first_blocks = told;
    EXPECT_TRUE(from.transport()
                    .StartSend({.sender_transfer = id, .ticket = ticket, .tokens = tokens})
                    .ok());
    from.transport().Announce(id, Rows(from, to, told, tokens), /*final=*/true, "m");
    TransferEvent received = to.WaitReceived(id);
    return {std::move(received), from.WaitSent(id)};
  }

  static bool IsUntouched(TestWorker& worker) {
    const std::byte* const begin = worker.pool().data();
    return std::all_of(begin, begin + worker.pool().size(),
                       [](std::byte byte) { return byte == std::byte{0xEE}; });
  }
};

INSTANTIATE_TEST_SUITE_P(Each, TransportGroupsRefusal, EveryMedium(), MediumName);

// The window begins at token 38, inside the receiver's block of tokens [32, 48). Blocks of 4 tokens
// would fill only tokens 36 to 47 of that block.
TEST_P(TransportGroupsRefusal, ASenderWithSmallerBlocks) {
  TestWorker a(Factory(), Shape(kTwoGroups, 4), 1, 0x11);
  TestWorker b(Factory(), Shape(kTwoGroups, 16), 2);
  const auto [received, sent] = Transfer(a, b, 1, 61, {0}, {0});
  EXPECT_EQ(received.kind, Kind::kReceiveFailed);
  EXPECT_EQ(received.status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(received.status.message()),
              HasSubstr("the sender has blocks of 4 tokens, ours have 16"));
  EXPECT_EQ(received.blocks_done, 0);
  EXPECT_EQ(sent.kind, Kind::kSendFailed);
  EXPECT_EQ(sent.status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(b.TerminalEvents(1, true), 1);
  EXPECT_TRUE(IsUntouched(b));
  // In the other direction, a larger block has all that the smaller ones need.
  EXPECT_EQ(Transfer(b, a, 2, 61, {0}, {0}).first.kind, Kind::kReceived);
}

// Frames of blocks with either window have the same sizes. With swapped entries, the sender's first
// window would travel where the receiver expects the second.
TEST_P(TransportGroupsRefusal, ATicketWithOtherFirstBlocksOfWindows) {
  TestWorker a(Factory(), Shape(kTwinWindows), 1, 0x11), b(Factory(), Shape(kTwinWindows), 2);
  uint64_t id = 0;
  for (const std::vector<int32_t>& told : {std::vector<int32_t>{2, 3}, {3, 3}, {2, 2}}) {
    const auto [received, sent] = Transfer(a, b, ++id, 16, {3, 2}, told);
    EXPECT_EQ(received.kind, Kind::kReceiveFailed);
    EXPECT_EQ(received.status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(received.status.message()),
                HasSubstr(absl::StrCat("announced window_first_blocks [", told[0], ", ", told[1],
                                       "], expected [3, 2]")));
    EXPECT_EQ(sent.kind, Kind::kSendFailed);
    EXPECT_TRUE(IsUntouched(b));
  }
  EXPECT_EQ(Transfer(a, b, ++id, 16, {3, 2}, {3, 2}).first.kind, Kind::kReceived);
  EXPECT_FALSE(IsUntouched(b));
}

TEST_P(TransportGroupsRefusal, RowsThatDoNotFitByBlockAndGroup) {
  TestWorker a(Factory(), Shape(kTwoGroups), 1), b(Factory(), Shape(kTwoGroups), 2);
  ReceiveSpec good{.transfer_id = 1, .window_first_blocks = {0}, .blocks = {}, .tokens = 32};
  for (int32_t block = 0; block < 8; ++block) {
    good.blocks.push_back(BlockId(block));
    good.blocks.push_back(block < 2 ? kNoBlock : BlockId(block));  // tokens from 9 on are seen
  }
  const auto refusal = [&](auto change) {
    ReceiveSpec spec = good;
    change(spec);
    const absl::Status status = b.transport().Expect(spec);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(
      refusal([](ReceiveSpec& s) { s.blocks[3] = BlockId(1); }),
      HasSubstr("block 1 of the sequence has block 1 of KV group 1, which does not travel"));
  EXPECT_THAT(refusal([](ReceiveSpec& s) { s.blocks[7] = kNoBlock; }),
              HasSubstr("block 3 of the sequence has block -1 of KV group 1, outside"));
  EXPECT_THAT(refusal([](ReceiveSpec& s) { s.blocks[7] = BlockId(64); }),
              HasSubstr("of KV group 1, outside its pool of 64 blocks"));
  EXPECT_THAT(refusal([](ReceiveSpec& s) { s.blocks[7] = BlockId(4); }),
              HasSubstr("block 4 is named twice, of KV group 1"));
  EXPECT_THAT(refusal([](ReceiveSpec& s) { s.window_first_blocks = {}; }),
              HasSubstr("window_first_blocks has 0 entries, the pool has 2 KV groups"));
  EXPECT_THAT(refusal([](ReceiveSpec& s) { s.window_first_blocks = {9}; }),
              HasSubstr("KV group 1 is 9, outside [0, 8]"));
  EXPECT_THAT(refusal([](ReceiveSpec& s) { s.blocks.pop_back(); }), HasSubstr("end at 7"));
  ASSERT_TRUE(b.transport().Expect(good).ok());
  TransferTicket ticket = b.Ticket(good);
  for (const std::vector<int32_t>& hostile :
       {std::vector<int32_t>{}, {-1}, {INT32_MIN}, {INT32_MAX}, {9}, {0, 0}}) {
    ticket.window_first_blocks = hostile;
    EXPECT_EQ(
        a.transport().StartSend({.sender_transfer = 5, .ticket = ticket, .tokens = 32}).code(),
        absl::StatusCode::kInvalidArgument);
  }
  // At the sender, a bad row fails the transfer.
  ASSERT_TRUE(
      a.transport().StartSend({.sender_transfer = 6, .ticket = b.Ticket(good), .tokens = 32}).ok());
  a.transport().Announce(6, std::vector{BlockId(0), BlockId(0)}, /*final=*/false, "");
  EXPECT_THAT(std::string(a.WaitSent(6).status.message()), HasSubstr("does not travel with it"));
  b.transport().CancelReceive(1);
}

TEST_P(TransportGroupsRefusal, APeerWithOtherGroupsByName) {
  TestWorker a(Factory(), Shape(kTwoGroups), 1), b(Factory(), Shape(kThreeGroups), 2);
  TestWorker one(Factory(), {.block_size = 4, .layers = 5}, 3);
  const auto refusal = [](TestWorker& from, TestWorker& to, const ReceiveSpec& spec,
                          TransferTicket ticket) {
    EXPECT_TRUE(to.transport().Expect(spec).ok());
    EXPECT_TRUE(from.transport()
                    .StartSend({.sender_transfer = spec.transfer_id, .ticket = ticket, .tokens = 4})
                    .ok());
    const std::string why(from.WaitSent(spec.transfer_id).status.message());
    to.transport().CancelReceive(spec.transfer_id);
    return why;
  };
  const ReceiveSpec three{.transfer_id = 1,
                          .window_first_blocks = {0, 0},
                          .blocks = {BlockId(0), BlockId(0), BlockId(0)},
                          .tokens = 4};
  TransferTicket ticket = b.Ticket(three);
  ticket.window_first_blocks = {0};
  EXPECT_THAT(refusal(a, b, three, ticket), HasSubstr("groups: ours"));
  ticket.window_first_blocks = {};
  EXPECT_THAT(
      refusal(
          one, b,
          {.transfer_id = 2, .window_first_blocks = {0, 0}, .blocks = three.blocks, .tokens = 4},
          ticket),
      HasSubstr("protocol_version: ours 7, theirs 5 to 6"));
}

}  // namespace
}  // namespace baton
