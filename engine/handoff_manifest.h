// Manifest of a hand-off: data that a prefill worker sends along with the KV blocks. It carries the
// first token of each choice and the prefill's part of the ledger.
//
// The encoding is little-endian, versioned and length-checked. It comes from a peer and is not
// trusted.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/request.h"

namespace baton {

struct DrawnToken {
  TokenId token = 0;
  TokenDetail detail;        // its log probabilities, if requested
  uint64_t logits_hash = 0;  // see FinishInfo
};

struct HandoffManifest {
  std::vector<DrawnToken> drawn;  // by choice, 1–kMaxChoices
  PrefillResult prefill;          // the sender's part of the ledger, without the kv_* fields
  bool chunked = false;           // of a chunked prompt: prefill.chunk is valid
};

// Encodes a manifest. One with a single token uses version 1, which every build can read, one with
// several tokens version 2. The manifest of a chunked prompt has version 3, which only builds that
// exchange chunks can read. REQUIRES: 1–kMaxChoices tokens.
std::string EncodeManifest(const HandoffManifest& manifest);
// DataLoss: wrong version, length or number of tokens. InvalidArgument: a token is outside [0,
// vocabulary).
absl::StatusOr<HandoffManifest> DecodeManifest(std::string_view bytes, int32_t vocabulary);

}  // namespace baton
