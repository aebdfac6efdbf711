#include "kvtransfer/protocol/fingerprint.h"

#include <bit>
#include <charconv>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/backend_pairs.h"
#include "common/status_macros.h"

namespace baton {
namespace {

template <typename T>
absl::Status Differ(const char* field, const T& ours, const T& theirs) {
  return absl::FailedPreconditionError(absl::StrCat(field, ": ours ", ours, ", theirs ", theirs));
}

// Lists layers; writes consecutive ones as "first-last".
std::string LayersText(const std::vector<int32_t>& layers) {
  std::string text;
  for (size_t at = 0; at < layers.size();) {
    size_t end = at + 1;
    while (end < layers.size() && layers[end] == layers[end - 1] + 1) ++end;
    absl::StrAppend(&text, text.empty() ? "" : ",", layers[at]);
    if (end - at > 1) absl::StrAppend(&text, "-", layers[end - 1]);
    at = end;
  }
  return text;
}

}  // namespace

std::string KvGroupsText(const KvCacheSpec& spec) {
  if (spec.groups.size() <= 1) return "";
  std::string text;
  for (const KvGroupSpec& group : spec.groups) {
    absl::StrAppend(&text, text.empty() ? "" : "; ", std::string(KvGroupKindName(group.kind)));
    if (group.window > 0) absl::StrAppend(&text, " ", group.window);
    absl::StrAppend(&text, " layers ", LayersText(group.model_layers), " heads ", group.kv_heads);
    for (int32_t plane = 0; plane < group.planes; ++plane) {
      absl::StrAppend(&text, plane == 0 ? " dims " : "+", group.head_dim_of(plane));
    }
  }
  return text;
}

void DescribeGroups(const KvCacheSpec& spec, KvFingerprint& fingerprint) {
  fingerprint.groups = KvGroupsText(spec);
  fingerprint.protocol = spec.groups.size() > 1 ? kGroupsTransferProtocol : kTransferProtocol;
}

absl::Status CheckBlockSize(std::string_view what, int64_t block_size) {
  if (block_size >= kMinBlockSize && block_size <= kMaxBlockSize &&
      std::has_single_bit(static_cast<uint64_t>(block_size))) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrFormat("%s %d is not a power of two in [%d, %d]", what,
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

uint32_t NumericsRevision(std::string_view numerics) {
  if (!numerics.starts_with('r')) return 0;
  uint32_t revision = 0;
  std::from_chars(numerics.data() + 1, numerics.data() + numerics.size(), revision);
  return NumericsOfRevision(revision) == numerics ? revision : 0;
}

std::string NumericsOfRevision(uint32_t revision) { return absl::StrCat("r", revision); }

absl::Status CheckCompatible(const KvFingerprint& ours, const KvFingerprint& theirs) {
  RETURN_IF_ERROR(CommonVersion(ours.protocol, theirs.protocol).status());
  if (ours.model != theirs.model) return Differ("model", ours.model, theirs.model);
  if (ours.numerics != theirs.numerics) return Differ("numerics", ours.numerics, theirs.numerics);
  if (ours.kv_type != theirs.kv_type) return Differ("kv_type", ours.kv_type, theirs.kv_type);
  if (ours.layers != theirs.layers) return Differ("layers", ours.layers, theirs.layers);
  if (ours.kv_heads != theirs.kv_heads) return Differ("kv_heads", ours.kv_heads, theirs.kv_heads);
  if (ours.head_dim != theirs.head_dim) return Differ("head_dim", ours.head_dim, theirs.head_dim);
  if (ours.rope != theirs.rope) return Differ("rope", ours.rope, theirs.rope);
  if (ours.groups != theirs.groups) return Differ("groups", ours.groups, theirs.groups);
  if (!IsConfirmedPair(ours.backend, theirs.backend)) {
    return absl::FailedPreconditionError(
        absl::StrCat("backend: ours ", ours.backend, ", theirs ", theirs.backend,
                     "; no test has confirmed that their bits are equal"));
  }
  return GeometryOf(theirs).status();
}

}  // namespace baton
