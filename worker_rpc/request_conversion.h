// Converts the requests of routers, and tickets, between the wire's messages and the engine's
// types. Values from the wire are range-checked only where the types differ, and sizes before they
// are copied. The engine validates their meaning.
//
// Thread safety: pure functions.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "baton/v1/transfer.pb.h"
#include "baton/v1/worker.pb.h"
#include "engine/request.h"

namespace baton {

// Limit of the parts of a chunked prompt that a ticket names: more than any prompt has.
inline constexpr int64_t kMaxTicketParts = 8192;

// Checks that the prompt leaves room in the context and that the generated tokens also fit. Call it
// before copying them. InvalidArgument names the numbers.
absl::Status CheckPromptSize(int64_t prompt_tokens, int64_t generated_tokens,
                             int32_t context_length);
// The same check for every part of a request, and for the number of its parts. Of a request with a
// chunked prompt, only the generated tokens are checked.
absl::Status CheckSize(const v1::DecodeRequest& wire, int32_t context_length);
absl::Status CheckSize(const v1::PrefillRequest& wire, int32_t context_length);

// InvalidArgument, with value and limit: a chunked prompt or a ticket is too large to copy, a
// chunked prompt has an unknown option, or the request has an ordinary prompt too.
absl::StatusOr<GenerateRequest> GenerateRequestFromWire(v1::DecodeRequest&& wire,
                                                        SamplingParams sampling);
absl::StatusOr<PrefillRequest> PrefillRequestFromWire(v1::PrefillRequest&& wire,
                                                      SamplingParams sampling);
absl::StatusOr<PullRequest> PullRequestFromWire(const v1::PullPrefixRequest& wire);
absl::StatusOr<SendPrefixRequest> SendPrefixRequestFromWire(const v1::SendPrefixRequest& wire);

absl::StatusOr<TransferTicket> TicketFromWire(const v1::TransferTicket& wire);
v1::TransferTicket TicketToWire(const TransferTicket& ticket);

}  // namespace baton
