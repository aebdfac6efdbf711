// What two workers must agree on before one reads the other's KV, and what is told beside it: how
// the pool is cut into blocks, the backend, and the protocol versions that the worker speaks.
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
// 4: pools may be cut differently; blocks on the wire are then the sender's, and a ticket says in
// which blocks it counts. 5: the blocks of a prompt's last chunk may travel layer by layer. 6: a
// receiver on the sender's host says when everything had landed. 7: blocks carry several KV groups.
// Models with several groups speak version 7 alone. Older builds refuse them by version. One-group
// models are not affected.
inline constexpr ProtocolRange kTransferProtocol = {.oldest = 5, .newest = 6};
inline constexpr ProtocolRange kGroupsTransferProtocol = {.oldest = 7, .newest = 7};
inline constexpr uint32_t kNewestTransferProtocol = kGroupsTransferProtocol.newest;
inline constexpr uint32_t kLandedTimeProtocolVersion = 6;
inline constexpr uint32_t kGroupsProtocolVersion = 7;

struct KvFingerprint {
  std::string model;     // hex of a 128-bit hash over the model's hyper-parameters and weights
  std::string numerics;  // "r1": names every bit of a result (kernels/numerics.h)
  std::string kv_type;   // "f16"
  int32_t layers = 0;    // of the model
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  std::string rope;    // canonical text of the RoPE parameters
  std::string groups;  // KvGroupsText; empty for a model with one group

  // Told beside it. Two workers may differ in these, as far as CheckCompatible says.
  ProtocolRange protocol = kTransferProtocol;
  std::string backend;  // "cpu", whichever of its devices
  std::string layout;   // "block-major"
  int32_t block_size = 0;

  bool operator==(const KvFingerprint&) const = default;
};

// Every KV group of a model on one line: kind, window, layers of the model, heads, planes and their
// sizes. Empty for one group, which the fields above describe.
std::string KvGroupsText(const KvCacheSpec& spec);
// Sets what a model's KV groups say of a fingerprint: `groups` and the protocol versions.
void DescribeGroups(const KvCacheSpec& spec, KvFingerprint& fingerprint);

// How a pool is cut up.
struct KvGeometry {
  KvLayoutKind layout = KvLayoutKind::kBlockMajor;
  int32_t block_size = 0;  // tokens

  bool operator==(const KvGeometry&) const = default;
};

// Ok for a power of two in [1, 128]; InvalidArgument names `what`, the value and the limit.
absl::Status CheckBlockSize(std::string_view what, int64_t block_size);

// InvalidArgument for a layout that nobody knows, or a block size out of range.
absl::StatusOr<KvGeometry> GeometryOf(const KvFingerprint& fingerprint);

// What builds before the name compare, told to them alone: N of numerics "rN", 0 of any other name.
uint32_t NumericsRevision(std::string_view numerics);
// The numerics of such a build.
std::string NumericsOfRevision(uint32_t revision);

// FailedPrecondition: protocol versions without a common one, with both ranges; the first field
// that must be equal and is not, with both values; two backends that are no confirmed pair
// (common/backend_pairs.h). InvalidArgument: a geometry of theirs that cannot be.
absl::Status CheckCompatible(const KvFingerprint& ours, const KvFingerprint& theirs);

}  // namespace baton
