#include "kvtransfer/protocol/fingerprint.h"

#include <bit>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"

namespace baton {
namespace {

template <typename T>
absl::Status Differ(const char* field, const T& ours, const T& theirs) {
  return absl::FailedPreconditionError(absl::StrCat(field, ": ours ", ours, ", theirs ", theirs));
}

}  // namespace

std::string KvFingerprint::ToString() const {
  return absl::StrFormat(
      "protocol_version=%d model=%s backend=%s numerics_revision=%d kv_type=%s layers=%d "
      "kv_heads=%d head_dim=%d rope=%s",
      protocol_version, model, backend, numerics_revision, kv_type, layers, kv_heads, head_dim,
      rope);
}

absl::Status CheckBlockSize(std::string_view what, int64_t block_size) {
  if (block_size >= kMinBlockSize && block_size <= kMaxBlockSize &&
      std::has_single_bit(static_cast<uint64_t>(block_size))) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrFormat("%s %d is no power of two in [%d, %d]", what,
                                                    block_size, kMinBlockSize, kMaxBlockSize));
}

absl::StatusOr<KvGeometry> GeometryOf(const KvFingerprint& fingerprint) {
  RETURN_IF_ERROR(CheckBlockSize("block_size", fingerprint.block_size));
  for (const KvLayoutKind kind : {KvLayoutKind::kBlockMajor, KvLayoutKind::kLayerMajor}) {
    if (fingerprint.layout == KvLayoutKindName(kind)) {
      return KvGeometry{.layout = kind, .block_size = fingerprint.block_size};
    }
  }
  return absl::InvalidArgumentError(absl::StrFormat(
      "layout \"%s\" is neither %s nor %s", fingerprint.layout,
      KvLayoutKindName(KvLayoutKind::kBlockMajor), KvLayoutKindName(KvLayoutKind::kLayerMajor)));
}

absl::Status CheckCompatible(const KvFingerprint& ours, const KvFingerprint& theirs) {
  // Both speak every version from the oldest to their own, so the older of the two is the one
  // spoken.
  if (theirs.protocol_version < kOldestTransferProtocolVersion ||
      theirs.protocol_version > ours.protocol_version + 1) {
    return Differ("protocol_version", ours.protocol_version, theirs.protocol_version);
  }
  if (ours.model != theirs.model) return Differ("model", ours.model, theirs.model);
  if (ours.backend != theirs.backend) return Differ("backend", ours.backend, theirs.backend);
  if (ours.numerics_revision != theirs.numerics_revision) {
    return Differ("numerics_revision", ours.numerics_revision, theirs.numerics_revision);
  }
  if (ours.kv_type != theirs.kv_type) return Differ("kv_type", ours.kv_type, theirs.kv_type);
  if (ours.layers != theirs.layers) return Differ("layers", ours.layers, theirs.layers);
  if (ours.kv_heads != theirs.kv_heads) return Differ("kv_heads", ours.kv_heads, theirs.kv_heads);
  if (ours.head_dim != theirs.head_dim) return Differ("head_dim", ours.head_dim, theirs.head_dim);
  if (ours.rope != theirs.rope) return Differ("rope", ours.rope, theirs.rope);
  return GeometryOf(theirs).status();
}

}  // namespace baton
