#include "engine/handoff_manifest.h"

#include <cstring>
#include <span>
#include <type_traits>

#include "common/check.h"
#include "common/status_macros.h"
#include "common/str_cat.h"

namespace baton {
namespace {

// Versions: first token only; first token plus further ones; any number of tokens, and the ledger
// of a chunked prompt.
constexpr uint32_t kOneToken = 1;
constexpr uint32_t kSeveralTokens = 2;
constexpr uint32_t kChunked = 3;
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

void PutAlternatives(std::string& out, const TokenDetail& detail) {
  Put(out, static_cast<uint32_t>(detail.top.size()));
  for (const TokenLogprob& entry : detail.top) {
    Put(out, entry.token);
    Put(out, entry.logprob);
  }
}

bool GetAlternatives(Reader& reader, TokenDetail& detail) {
  uint32_t count = 0;
  if (!reader.Get(count) || count > kMaxAlternatives) return false;
  detail.top.resize(count);
  for (TokenLogprob& entry : detail.top) {
    if (!reader.Get(entry.token) || !reader.Get(entry.logprob)) return false;
  }
  return true;
}

bool GetPrefill(Reader& reader, PrefillResult& prefill) {
  return reader.Get(prefill.cached_tokens) && reader.Get(prefill.computed_tokens) &&
         reader.Get(prefill.chunks) && reader.Get(prefill.queue_us) &&
         reader.Get(prefill.prefill_us);
}

// Reads the part that version 2 appends to version 1: the number of further tokens, at least
// `least`, then the tokens.
bool GetFurtherTokens(Reader& reader, uint32_t least, std::vector<DrawnToken>& drawn) {
  uint32_t further = 0;
  if (!reader.Get(further) || further < least || further >= kMaxChoices) return false;
  for (uint32_t i = 0; i < further; ++i) {
    DrawnToken& next = drawn.emplace_back();
    if (!reader.Get(next.token) || !reader.Get(next.logits_hash) ||
        !reader.Get(next.detail.logprob) || !GetAlternatives(reader, next.detail)) {
      return false;
    }
  }
  return true;
}

void PutChunks(std::string& out, const ChunkLedger& chunk) {
  Put(out, chunk.chunks);
  Put(out, chunk.hits);
  Put(out, chunk.repaired_tokens);
  Put(out, chunk.pulled_bytes);
  Put(out, chunk.lookup_us);
  Put(out, chunk.compute_us);
  Put(out, chunk.place_us);
  Put(out, chunk.repair_us);
  Put(out, chunk.wake_us);
}

bool GetChunks(Reader& reader, ChunkLedger& chunk) {
  return reader.Get(chunk.chunks) && reader.Get(chunk.hits) && reader.Get(chunk.repaired_tokens) &&
         reader.Get(chunk.pulled_bytes) && reader.Get(chunk.lookup_us) &&
         reader.Get(chunk.compute_us) && reader.Get(chunk.place_us) &&
         reader.Get(chunk.repair_us) && reader.Get(chunk.wake_us);
}

uint32_t VersionFor(const HandoffManifest& manifest) {
  if (manifest.chunked) return kChunked;
  return manifest.drawn.size() == 1 ? kOneToken : kSeveralTokens;
}

absl::Status CheckToken(TokenId token, int32_t vocabulary) {
  if (token >= 0 && token < vocabulary) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat("hand-off manifest: token ", token, " is outside the vocabulary of ", vocabulary));
}

}  // namespace

std::string EncodeManifest(const HandoffManifest& manifest) {
  CHECK(!manifest.drawn.empty() && manifest.drawn.size() <= kMaxChoices) << manifest.drawn.size();
  const DrawnToken& first = manifest.drawn.front();
  std::string out;
  const uint32_t version = VersionFor(manifest);
  Put(out, version);
  Put(out, first.token);
  Put(out, first.logits_hash);
  Put(out, first.detail.logprob);
  Put(out, manifest.prefill.cached_tokens);
  Put(out, manifest.prefill.computed_tokens);
  Put(out, manifest.prefill.chunks);
  Put(out, manifest.prefill.queue_us);
  Put(out, manifest.prefill.prefill_us);
  PutAlternatives(out, first.detail);
  if (version == kOneToken) return out;
  Put(out, static_cast<uint32_t>(manifest.drawn.size() - 1));
  for (const DrawnToken& next : std::span(manifest.drawn).subspan(1)) {
    Put(out, next.token);
    Put(out, next.logits_hash);
    Put(out, next.detail.logprob);
    PutAlternatives(out, next.detail);
  }
  if (version == kChunked) PutChunks(out, manifest.prefill.chunk);
  return out;
}

absl::StatusOr<HandoffManifest> DecodeManifest(std::string_view bytes, int32_t vocabulary) {
  const absl::Status damaged =
      absl::DataLossError(StrCat("hand-off manifest of ", bytes.size(), " bytes is damaged"));
  Reader reader(bytes);
  uint32_t version = 0;
  if (!reader.Get(version)) return damaged;
  if (version < kOneToken || version > kChunked) {
    return absl::DataLossError(StrCat("hand-off manifest has version ", version, ", expected ",
                                      kOneToken, " to ", kChunked));
  }
  HandoffManifest manifest;
  DrawnToken& first = manifest.drawn.emplace_back();
  if (!reader.Get(first.token) || !reader.Get(first.logits_hash) ||
      !reader.Get(first.detail.logprob) || !GetPrefill(reader, manifest.prefill) ||
      !GetAlternatives(reader, first.detail)) {
    return damaged;
  }
  manifest.chunked = version == kChunked;
  const uint32_t least_further = manifest.chunked ? 0 : 1;
  if (version != kOneToken && !GetFurtherTokens(reader, least_further, manifest.drawn)) {
    return damaged;
  }
  if (manifest.chunked && !GetChunks(reader, manifest.prefill.chunk)) return damaged;
  if (!reader.done()) return damaged;
  for (const DrawnToken& drawn : manifest.drawn) {
    RETURN_IF_ERROR(CheckToken(drawn.token, vocabulary));
    for (const TokenLogprob& entry : drawn.detail.top) {
      RETURN_IF_ERROR(CheckToken(entry.token, vocabulary));
    }
  }
  return manifest;
}

}  // namespace baton
