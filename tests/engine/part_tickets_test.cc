#include "engine/part_tickets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace baton {
namespace {

using ::testing::HasSubstr;

// A system part of 6 tokens, and chunks of 9 and 4.
ChunkLayout Layout() {
  ChunkedPrompt prompt;
  prompt.system.assign(6, 1);
  prompt.chunks = {std::vector<TokenId>(9, 2), std::vector<TokenId>(4, 3)};
  prompt.question = {4};
  return MakeChunkLayout(prompt, CacheNamespace(0), 256);
}

TransferTicket Ticket() {
  return {.transfer_id = 77,
          .receiver_epoch = Epoch(9),
          .address = "fake:there",
          .block_size = 4,
          .timeout_ms = 40,
          .parts = {{.part = 0, .transfer_id = 10, .first_block = 1, .block_count = 1},
                    {.part = 2, .transfer_id = 12, .block_count = 1}}};
}

std::string Refusal(const TransferTicket& ticket) {
  const absl::Status status = CheckPartTickets(ticket, Layout(), 4);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  return std::string(status.message());
}

TEST(PartTickets, APartHasTheFieldsOfItsTicketAndItsOwnBlocks) {
  const TransferTicket ticket = Ticket();
  const TransferTicket part = TicketOfPart(ticket, ticket.parts[0]);
  EXPECT_EQ(part.transfer_id, 10u);
  EXPECT_EQ(part.receiver_epoch, Epoch(9));
  EXPECT_EQ(part.address, "fake:there");
  EXPECT_EQ(part.first_block, 1);
  EXPECT_EQ(part.block_count, 1);
  EXPECT_EQ(part.block_size, 4);
  EXPECT_EQ(part.timeout_ms, 40);
  EXPECT_TRUE(part.parts.empty());
}

TEST(PartTickets, PartsMustRiseAndExist) {
  EXPECT_TRUE(CheckPartTickets(Ticket(), Layout(), 4).ok());
  TransferTicket ticket = Ticket();
  ticket.parts.push_back({.part = 3, .block_count = 1});
  EXPECT_THAT(Refusal(ticket),
              HasSubstr("names part 3 after part 2; the numbers must rise, and the "
                        "prompt has 3"));
  ticket.parts.back().part = 2;
  EXPECT_THAT(Refusal(ticket), HasSubstr("names part 2 after part 2"));
  ticket.parts = {{.part = -1, .block_count = 1}};
  EXPECT_THAT(Refusal(ticket), HasSubstr("names part -1"));
}

TEST(PartTickets, BlocksMustEndWithThePart) {
  TransferTicket ticket = Ticket();
  ticket.parts[1].block_count = 2;
  EXPECT_THAT(Refusal(ticket),
              HasSubstr("ticket.parts, part 2: ticket first_block 0 and block_count 2"));
  ticket.parts[1] = {.part = 2, .first_block = 1};
  EXPECT_THAT(Refusal(ticket), HasSubstr("part 2: block_count is 0; it must be at least 1"));
  ticket.parts[1] = {.part = 2, .first_block = -1, .block_count = 2};
  EXPECT_THAT(Refusal(ticket), HasSubstr("ticket.parts, part 2"));
  ticket.parts[1] = {.part = 2, .first_block = 2147483647, .block_count = 2147483647};
  EXPECT_THAT(Refusal(ticket), HasSubstr("ticket.parts, part 2"));
  ticket = Ticket();
  ticket.block_size = 12;
  EXPECT_THAT(Refusal(ticket), HasSubstr("block_size"));
}

}  // namespace
}  // namespace baton
