#include "engine/part_tickets.h"

#include <string>

#include "common/str_cat.h"
#include "kvtransfer/protocol/send_session.h"

namespace baton {

TransferTicket TicketOfPart(const TransferTicket& ticket, const PartTicket& part) {
  return {.transfer_id = part.transfer_id,
          .receiver_epoch = ticket.receiver_epoch,
          .address = ticket.address,
          .first_block = part.first_block,
          .block_count = part.block_count,
          .block_size = ticket.block_size,
          .timeout_ms = ticket.timeout_ms};
}

absl::Status CheckPartTickets(const TransferTicket& ticket, const ChunkLayout& layout,
                              int32_t block_size) {
  const auto parts = static_cast<int32_t>(layout.parts.size());
  int32_t before = -1;
  for (const PartTicket& part : ticket.parts) {
    if (part.part <= before || part.part >= parts) {
      return absl::InvalidArgumentError(
          StrCat("ticket.parts names part ", part.part, " after part ", before,
                 "; the numbers must rise, and the prompt has ", parts, " parts"));
    }
    before = part.part;
    const auto tokens = static_cast<int32_t>(layout.parts[part.part].tokens.size());
    absl::Status fits = CheckTicket(TicketOfPart(ticket, part), tokens, block_size, /*groups=*/1);
    if (fits.ok() && part.block_count < 1) {
      fits = absl::InvalidArgumentError(
          StrCat("block_count is ", part.block_count, "; it must be at least 1"));
    }
    if (fits.ok()) continue;
    return absl::InvalidArgumentError(
        StrCat("ticket.parts, part ", part.part, ": ", std::string(fits.message())));
  }
  return absl::OkStatus();
}

}  // namespace baton
