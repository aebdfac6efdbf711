// What a prefill worker hands over beside the KV blocks: the first token of each choice and what
// its sampling left behind.
//
// Encoded little-endian, versioned, length-checked; it comes from a peer and is not trusted.
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
  TokenDetail detail;        // its log probabilities, when asked for
  uint64_t logits_hash = 0;  // see FinishInfo
};

struct HandoffManifest {
  std::vector<DrawnToken> drawn;  // by choice, 1–kMaxChoices
  PrefillResult prefill;          // the sender's part of the ledger; its kv_* fields do not travel
};

// With one token as every build reads it.
std::string EncodeManifest(const HandoffManifest& manifest);
// DataLoss: wrong version, length or number of tokens. InvalidArgument: a token outside
// [0, vocabulary).
absl::StatusOr<HandoffManifest> DecodeManifest(std::string_view bytes, int32_t vocabulary);

}  // namespace baton
