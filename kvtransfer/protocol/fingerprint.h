// What two workers must agree on before one reads the other's KV, and what it may differ in: how
// their pools are cut into blocks.
//
// Thread safety: plain data.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cache/kv_cache_spec.h"

namespace baton {

// This version and the one before are spoken.
// 4: pools may be cut differently; blocks on the wire are then the sender's, and a ticket says in
// which blocks it counts. 5: the blocks of a prompt's last chunk may travel layer by layer. 6: a
// receiver on the sender's host says when everything had landed.
inline constexpr uint32_t kTransferProtocolVersion = 6;
inline constexpr uint32_t kLandedTimeProtocolVersion = 6;
inline constexpr uint32_t kOldestTransferProtocolVersion = 5;

struct KvFingerprint {
  uint32_t protocol_version = kTransferProtocolVersion;
  std::string model;    // hex of a 128-bit hash over the model's hyper-parameters and weights
  std::string backend;  // "cpu", "cuda": bits are promised within one
  uint32_t numerics_revision = 0;
  std::string kv_type;  // "f16"
  std::string layout;   // "block-major"
  int32_t block_size = 0;
  int32_t layers = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  std::string rope;  // canonical text of the RoPE parameters

  bool operator==(const KvFingerprint&) const = default;
  // All that must be equal, which layout and block_size need not be. One line, for registries that
  // only compare.
  std::string ToString() const;
};

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

// FailedPrecondition names the first field that differs and both values; InvalidArgument a geometry
// of theirs that cannot be. Geometries may differ.
absl::Status CheckCompatible(const KvFingerprint& ours, const KvFingerprint& theirs);

}  // namespace baton
