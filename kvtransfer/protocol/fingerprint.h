// Fingerprint: the properties that two workers must share before one may read the other's KV. It
// also carries what they may differ in: layout and block size of the pool, the backend, and the
// supported protocol versions.
//
// Thread safety: plain data.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cache/kv_cache_spec.h"
#include "common/protocol_range.h"

namespace baton {

// Versions of the protocol between workers that this build speaks.
//
//  - 4: pools may differ in layout and block size. Blocks on the wire are the sender's. A ticket
//    says in which block size it counts.
//  - 5: the blocks of a prompt's last chunk may travel layer by layer.
//  - 6: a receiver on the sender's host reports when everything had landed.
//  - 7: blocks carry several KV groups.
//
// Models with several groups speak only version 7, so older builds refuse them by version. Models
// with one group are not affected.
inline constexpr ProtocolRange kTransferProtocol = {.oldest = 5, .newest = 6};
inline constexpr ProtocolRange kGroupsTransferProtocol = {.oldest = 7, .newest = 7};
inline constexpr uint32_t kNewestTransferProtocol = kGroupsTransferProtocol.newest;
inline constexpr uint32_t kLandedTimeProtocolVersion = 6;
inline constexpr uint32_t kGroupsProtocolVersion = 7;

struct KvFingerprint {
  std::string model;     // hex of a 128-bit hash over the model's hyperparameters and weights
  std::string numerics;  // "r1": identifies every bit of a result (kernels/numerics.h)
  std::string kv_type;   // "f16"
  int32_t layers = 0;    // of the whole model
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  std::string rope;    // canonical text of the RoPE parameters
  std::string groups;  // KvGroupsText; empty for a model with one group

  // Sent along with the above. Two workers may differ in these as far as CheckCompatible allows.
  ProtocolRange protocol = kTransferProtocol;
  std::string backend;  // Device::backend
  std::string layout;   // "block-major"
  int32_t block_size = 0;

  bool operator==(const KvFingerprint&) const = default;
};

// Returns every KV group of a model on one line: kind, window, layers of the model, heads, planes
// and plane sizes. Empty for one group, because the fields above describe it.
std::string KvGroupsText(const KvCacheSpec& spec);
// Sets the fields that depend on the model's KV groups: `groups` and the protocol versions.
void DescribeGroups(const KvCacheSpec& spec, KvFingerprint& fingerprint);

// How a pool is divided into blocks.
struct KvGeometry {
  KvLayoutKind layout = KvLayoutKind::kBlockMajor;
  int32_t block_size = 0;  // tokens

  bool operator==(const KvGeometry&) const = default;
};

// Ok for a power of two in [1, 128]. InvalidArgument names `what`, the value and the limit.
absl::Status CheckBlockSize(std::string_view what, int64_t block_size);

// InvalidArgument for an unknown layout or a block size out of range.
absl::StatusOr<KvGeometry> GeometryOf(const KvFingerprint& fingerprint);

// Returns N for numerics "rN", and 0 for any other name. Only sent to older builds, which compare
// this number instead of the name.
uint32_t NumericsRevision(std::string_view numerics);
// Returns the numerics name of such an older build.
std::string NumericsOfRevision(uint32_t revision);

// Checks whether the two workers may exchange KV. FailedPrecondition if one of these holds:
//  - The protocol versions have no common one. The message has both ranges.
//  - A field that must be equal differs. The message names the first one and both values.
//  - The two backends are not a confirmed pair (common/backend_pairs.h).
//
// InvalidArgument if their layout or block size is invalid.
absl::Status CheckCompatible(const KvFingerprint& ours, const KvFingerprint& theirs);

}  // namespace baton
