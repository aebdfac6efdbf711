// Converts between ClientRequest and GenerateRequest.
//
// Thread safety: pure functions.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "baton/v1/inference.pb.h"
#include "requests/client_request.h"

namespace baton {

// Checks the sizes of all lists before it copies them: a message that is small on the wire can be
// large in memory. InvalidArgument names the field, its value and the limit.
absl::StatusOr<ClientRequest> ClientRequestFromWire(const v1::GenerateRequest& wire,
                                                    const RequestLimits& limits);
absl::StatusOr<std::vector<ChatMessage>> MessagesFromWire(const v1::Messages& wire,
                                                          const RequestLimits& limits);
bool AddsGenerationPrompt(const v1::Messages& wire);

// Returns a request without placement.
v1::GenerateRequest ClientRequestToWire(const ClientRequest& request);

// Checks that all text is UTF-8, as the wire requires. The error names the field; the RPC layer's
// own error would not.
absl::Status CheckUtf8(const ClientRequest& request);

}  // namespace baton
