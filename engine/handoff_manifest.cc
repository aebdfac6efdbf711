#include "engine/handoff_manifest.h"

#include <cstring>
#include <type_traits>

#include "common/str_cat.h"

namespace baton {
namespace {

constexpr uint32_t kManifestVersion = 1;
constexpr uint32_t kMaxAlternatives = 64;

template <typename T>
void Put(std::string& out, T value) {
  static_assert(std::is_trivially_copyable_v<T>);
  out.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  template <typename T>
  bool Get(T& value) {
    if (bytes_.size() < sizeof(T)) return false;
    std::memcpy(&value, bytes_.data(), sizeof(T));
    bytes_.remove_prefix(sizeof(T));
    return true;
  }
  bool done() const { return bytes_.empty(); }

 private:
  std::string_view bytes_;
};

absl::Status CheckToken(TokenId token, int32_t vocabulary) {
  if (token >= 0 && token < vocabulary) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat("hand-off manifest: token ", token, " is outside the vocabulary of ", vocabulary));
}

}  // namespace

std::string EncodeManifest(const HandoffManifest& manifest) {
  std::string out;
  Put(out, kManifestVersion);
  Put(out, manifest.first_token);
  Put(out, manifest.logits_hash);
  Put(out, manifest.detail.logprob);
  Put(out, manifest.prefill.cached_tokens);
  Put(out, manifest.prefill.computed_tokens);
  Put(out, manifest.prefill.chunks);
  Put(out, manifest.prefill.queue_us);
  Put(out, manifest.prefill.prefill_us);
  Put(out, static_cast<uint32_t>(manifest.detail.top.size()));
  for (const TokenLogprob& entry : manifest.detail.top) {
    Put(out, entry.token);
    Put(out, entry.logprob);
  }
  return out;
}

absl::StatusOr<HandoffManifest> DecodeManifest(std::string_view bytes, int32_t vocabulary) {
  const absl::Status damaged =
      absl::DataLossError(StrCat("hand-off manifest of ", bytes.size(), " bytes is damaged"));
  Reader reader(bytes);
  uint32_t version = 0;
  if (!reader.Get(version)) return damaged;
  if (version != kManifestVersion) {
    return absl::DataLossError(
        StrCat("hand-off manifest has version ", version, ", expected ", kManifestVersion));
  }
  HandoffManifest manifest;
  uint32_t alternatives = 0;
  if (!reader.Get(manifest.first_token) || !reader.Get(manifest.logits_hash) ||
      !reader.Get(manifest.detail.logprob) || !reader.Get(manifest.prefill.cached_tokens) ||
      !reader.Get(manifest.prefill.computed_tokens) || !reader.Get(manifest.prefill.chunks) ||
      !reader.Get(manifest.prefill.queue_us) || !reader.Get(manifest.prefill.prefill_us) ||
      !reader.Get(alternatives) || alternatives > kMaxAlternatives) {
    return damaged;
  }
  if (absl::Status status = CheckToken(manifest.first_token, vocabulary); !status.ok()) {
    return status;
  }
  for (uint32_t i = 0; i < alternatives; ++i) {
    TokenLogprob entry;
    if (!reader.Get(entry.token) || !reader.Get(entry.logprob)) return damaged;
    if (absl::Status status = CheckToken(entry.token, vocabulary); !status.ok()) return status;
    manifest.detail.top.push_back(entry);
  }
  if (!reader.done()) return damaged;
  return manifest;
}

}  // namespace baton
