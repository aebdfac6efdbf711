// Tickets for parts of chunked prompts. A worker checks those that come from a peer.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "cache/chunk_layout.h"
#include "kvtransfer/transport.h"

namespace baton {

// Returns the ticket of the transfer that carries one part of `ticket`.
TransferTicket TicketOfPart(const TransferTicket& ticket, const PartTicket& part);

// Checks the parts of a ticket for a sender with blocks of `block_size`. InvalidArgument names the
// field: a part that the layout does not have, parts out of order, or blocks that do not end with
// the part.
absl::Status CheckPartTickets(const TransferTicket& ticket, const ChunkLayout& layout,
                              int32_t block_size);

}  // namespace baton
