// Converts between wire messages and the router's types.
//
// Thread safety: pure functions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "baton/v1/inference.pb.h"
#include "baton/v1/worker.pb.h"
#include "common/strong_int.h"
#include "router/fleet_index.h"
#include "router/served_model.h"
#include "router/tenant_gate.h"
#include "routing/routing_policy.h"
#include "routing/worker_registry.h"

namespace baton {

// InvalidArgument for an unknown role, or for more than 64 KiB.
absl::StatusOr<WorkerReport> ReportFromWire(const v1::HeartbeatRequest& wire);
ModelDescription ModelFromWire(v1::TokenizerDescription&& wire);
absl::StatusOr<Placement> PlacementFromWire(v1::PrefillPlacement wire);

// Shows the workers that are both in the index and in `workers`.
v1::IndexStatus IndexStatusToWire(const FleetIndexStatus& status, size_t predicted_units,
                                  const std::vector<WorkerRecord>& workers);

v1::TenantStatus TenantToWire(const TenantUse& use);

// Returns the text of `ids`. InvalidArgument: more ids than kMaxDetokenizeIds, an id outside the
// vocabulary, or more text than kMaxDetokenizedBytes.
inline constexpr int64_t kMaxDetokenizeIds = 1'000'000;
inline constexpr int64_t kMaxDetokenizedBytes = int64_t{16} << 20;
absl::StatusOr<std::string> TextFromWire(const Tokenizer& tokenizer,
                                         const v1::DetokenizeRequest& wire);

}  // namespace baton
