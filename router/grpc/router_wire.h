// Converts between wire messages and the router's types.
//
// Thread safety: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "baton/v1/inference.pb.h"
#include "baton/v1/worker.pb.h"
#include "common/request_check.h"
#include "common/strong_int.h"
#include "router/fleet_index.h"
#include "router/served_model.h"
#include "routing/routing_policy.h"
#include "routing/worker_registry.h"
#include "text/prompt_encoder.h"

namespace baton {

// InvalidArgument for an unknown role, or for more than 64 KiB.
absl::StatusOr<WorkerReport> ReportFromWire(const v1::HeartbeatRequest& wire);
ModelDescription ModelFromWire(v1::TokenizerDescription&& wire);
int32_t ChoicesFromWire(const v1::GenerateRequest& wire);
absl::StatusOr<Placement> PlacementFromWire(v1::PrefillPlacement wire);

RequestLimits LimitsFor(const ServedModel& model, int64_t max_prompt_bytes);

// Returns the prompt as the model sees it. InvalidArgument names the field, its value and the
// limit.
absl::StatusOr<EncodedPrompt> EncodeMessagesFromWire(const ServedModel& model,
                                                     const RequestLimits& limits,
                                                     const v1::Messages& wire,
                                                     const ChunkForm& form = {});
// `chunk_separator`: of requests that set none.
absl::StatusOr<EncodedPrompt> PromptFromWire(const ServedModel& model, const RequestLimits& limits,
                                             std::string_view chunk_separator,
                                             const v1::GenerateRequest& wire);
// Checks everything about a request that does not need its tokenised prompt. A request that passes
// is small enough to copy. Limits that are unknown (0) are not checked. `chunk_separator` as in
// PromptFromWire.
absl::Status CheckRequest(const v1::GenerateRequest& wire, const RequestLimits& limits,
                          std::string_view chunk_separator = "");

// Shows the workers that are both in the index and in `workers`.
v1::IndexStatus IndexStatusToWire(const FleetIndexStatus& status, size_t predicted_units,
                                  const std::vector<WorkerRecord>& workers);

// Returns the text of `ids`. InvalidArgument: more ids than kMaxDetokenizeIds, an id outside the
// vocabulary, or more text than kMaxDetokenizedBytes.
inline constexpr int64_t kMaxDetokenizeIds = 1'000'000;
inline constexpr int64_t kMaxDetokenizedBytes = int64_t{16} << 20;
absl::StatusOr<std::string> TextFromWire(const Tokenizer& tokenizer,
                                         const v1::DetokenizeRequest& wire);

}  // namespace baton
