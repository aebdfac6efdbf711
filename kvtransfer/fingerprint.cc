#include "kvtransfer/fingerprint.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace baton {
namespace {

template <typename T>
absl::Status Differ(const char* field, const T& ours, const T& theirs) {
  return absl::FailedPreconditionError(absl::StrCat(field, ": ours ", ours, ", theirs ", theirs));
}

}  // namespace

std::string KvFingerprint::ToString() const {
  return absl::StrFormat(
      "protocol_version=%d model=%s backend=%s numerics_revision=%d kv_type=%s layout=%s "
      "block_size=%d layers=%d kv_heads=%d head_dim=%d rope=%s",
      protocol_version, model, backend, numerics_revision, kv_type, layout, block_size, layers,
      kv_heads, head_dim, rope);
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
  if (ours.layout != theirs.layout) return Differ("layout", ours.layout, theirs.layout);
  if (ours.block_size != theirs.block_size) {
    return Differ("block_size", ours.block_size, theirs.block_size);
  }
  if (ours.layers != theirs.layers) return Differ("layers", ours.layers, theirs.layers);
  if (ours.kv_heads != theirs.kv_heads) return Differ("kv_heads", ours.kv_heads, theirs.kv_heads);
  if (ours.head_dim != theirs.head_dim) return Differ("head_dim", ours.head_dim, theirs.head_dim);
  if (ours.rope != theirs.rope) return Differ("rope", ours.rope, theirs.rope);
  return absl::OkStatus();
}

}  // namespace baton
