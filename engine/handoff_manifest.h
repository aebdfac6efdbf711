// What a prefill worker hands over beside the KV blocks: the first token and what its sampling left
// behind.
//
// Encoded little-endian, versioned, length-checked; it comes from a peer and is not trusted.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/request.h"

namespace baton {

struct HandoffManifest {
  TokenId first_token = 0;
  TokenDetail detail;        // its log probabilities, when asked for
  uint64_t logits_hash = 0;  // see FinishInfo
  PrefillResult prefill;     // the sender's part of the ledger; its kv_* fields do not travel
};

std::string EncodeManifest(const HandoffManifest& manifest);
// DataLoss: wrong version or length. InvalidArgument: a token outside [0, vocabulary).
absl::StatusOr<HandoffManifest> DecodeManifest(std::string_view bytes, int32_t vocabulary);

}  // namespace baton
