// What two workers must agree on before one reads the other's KV.
//
// Thread safety: plain data.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace baton {

// This version and the one before are spoken.
// 2: tickets may list addresses. 3: payload may go over NCCL.
inline constexpr uint32_t kTransferProtocolVersion = 3;
inline constexpr uint32_t kNcclProtocolVersion = 3;
inline constexpr uint32_t kOldestTransferProtocolVersion = 2;

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
  // One line, for registries that only compare for equality.
  std::string ToString() const;
};

// FailedPrecondition names the first field that differs and both values.
absl::Status CheckCompatible(const KvFingerprint& ours, const KvFingerprint& theirs);

}  // namespace baton
