// Label values of metrics. Each label has a closed set of values, so the number of time series is
// known at compile time. An enum and its names stand side by side, in the same order.
//
// Thread safety: constants.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"

namespace baton {

// Canonical status codes, in the order of absl::StatusCode.
inline constexpr std::array<std::string_view, 17> kStatusCodeNames = {
    "ok",        "cancelled",      "unknown",           "invalid_argument",   "deadline_exceeded",
    "not_found", "already_exists", "permission_denied", "resource_exhausted", "failed_precondition",
    "aborted",   "out_of_range",   "unimplemented",     "internal",           "unavailable",
    "data_loss", "unauthenticated"};

// Returns the label value of a code. A code outside the canonical ones counts as unknown.
constexpr absl::StatusCode LabelOf(absl::StatusCode code) {
  const auto number = static_cast<int>(code);
  return number >= 0 && number < static_cast<int>(kStatusCodeNames.size())
             ? code
             : absl::StatusCode::kUnknown;
}
inline absl::StatusCode LabelOf(const absl::Status& status) { return LabelOf(status.code()); }

// API method that a client called.
enum class Endpoint : uint8_t { kGenerate, kChatCompletions, kCompletions };
inline constexpr std::array<std::string_view, 3> kEndpointNames = {"generate", "chat_completions",
                                                                   "completions"};

// Why a router refused a request, or ended it before its first token.
enum class Refusal : uint8_t {
  kLimit,         // --max-active-requests, a tenant's limit, or full queues for texts
  kOverload,      // it would have missed its deadline (load shedding)
  kNoWorker,      // no worker that can take it is usable
  kNoRoom,        // the workers have no room
  kInvalid,       // a field is wrong, or no worker takes such a request
  kShutdown,      // the router is shutting down
  kUnauthorized,  // no valid key, or the key or certificate is not for this
};
inline constexpr std::array<std::string_view, 7> kRefusalNames = {
    "limit", "overload", "no_worker", "no_room", "invalid", "shutdown", "unauthorized"};

// Where the KV of a prompt token came from.
enum class PromptSource : uint8_t { kComputed, kCached, kPulled, kTransferred };
inline constexpr std::array<std::string_view, 4> kPromptSourceNames = {"computed", "cached",
                                                                       "pulled", "transferred"};

// Worker that computes a prompt.
enum class PrefillPlace : uint8_t { kPrefillWorker, kDecodeWorker };
inline constexpr std::array<std::string_view, 2> kPrefillPlaceNames = {"prefill_worker",
                                                                       "decode_worker"};

enum class PullOutcomeLabel : uint8_t { kPulled, kNothing, kFailed };
inline constexpr std::array<std::string_view, 3> kPullOutcomeNames = {"pulled", "nothing",
                                                                      "failed"};

// Role and state of a registered worker.
enum class RoleLabel : uint8_t { kPrefill, kDecode, kBoth };
inline constexpr std::array<std::string_view, 3> kRoleNames = {"prefill", "decode", "both"};
enum class WorkerState : uint8_t { kUsable, kDraining, kUnreachable, kSilent };
inline constexpr std::array<std::string_view, 4> kWorkerStateNames = {"usable", "draining",
                                                                      "unreachable", "silent"};

// Changes of the fleet, in the order of FleetChange::Kind.
inline constexpr std::array<std::string_view, 9> kFleetChangeNames = {
    "joined",    "left",   "replaced", "expired",     "unreachable",
    "reachable", "silent", "answers",  "role_changed"};

enum class HeartbeatOutcome : uint8_t { kAccepted, kRefused, kLeaving, kFailed };
inline constexpr std::array<std::string_view, 4> kHeartbeatOutcomeNames = {"accepted", "refused",
                                                                           "leaving", "failed"};

// Kind of an engine's request: an answer, or a prompt for another worker.
enum class WorkKind : uint8_t { kGenerate, kPrefill };
inline constexpr std::array<std::string_view, 2> kWorkKindNames = {"generate", "prefill"};

// What a step computed.
enum class StepWork : uint8_t { kPrefill, kDecode, kMixed };
inline constexpr std::array<std::string_view, 3> kStepWorkNames = {"prefill", "decode", "mixed"};

// States of KV blocks.
enum class BlockState : uint8_t { kFree, kCached, kOwned, kInFlight, kStep };
inline constexpr std::array<std::string_view, 5> kBlockStateNames = {"free", "cached", "owned",
                                                                     "in_flight", "step"};

// Media between KV pools, in the order of KvMedium.
inline constexpr std::array<std::string_view, 4> kTransportNames = {"loopback", "shm", "tcp",
                                                                    "nccl"};

enum class Direction : uint8_t { kReceived, kSent };
inline constexpr std::array<std::string_view, 2> kDirectionNames = {"received", "sent"};

// Why a KV transfer failed.
enum class TransferFailure : uint8_t {
  kCancelled,  // its request ended first
  kTimeout,    // it missed its deadline
  kPeerLost,   // the connection or the other worker is gone
  kCorrupt,    // a checksum differs, or a message is malformed
  kRefused,    // the other worker did not expect it, or has no room
  kOther,
};
inline constexpr std::array<std::string_view, 6> kTransferFailureNames = {
    "cancelled", "timeout", "peer_lost", "corrupt", "refused", "other"};

// Returns the label of the status with which a transfer failed.
constexpr TransferFailure TransferFailureOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kCancelled:
      return TransferFailure::kCancelled;
    case absl::StatusCode::kDeadlineExceeded:
      return TransferFailure::kTimeout;
    case absl::StatusCode::kUnavailable:
      return TransferFailure::kPeerLost;
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kInvalidArgument:
      return TransferFailure::kCorrupt;
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kResourceExhausted:
      return TransferFailure::kRefused;
    default:
      return TransferFailure::kOther;
  }
}

}  // namespace baton
