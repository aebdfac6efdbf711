// Cache keys: a namespace and a run of 64-bit units identify a prefix.
//
// The namespace is a hash of length-tagged fields: tenant, cache salt, LoRA and model revision. The
// tags make ("a","bc") and ("ab","c") differ. The namespace is the first part of every key, so a
// lookup never crosses namespaces. The hash is the first 128 bits of SHA-256. It must resist
// attacks, because a client chooses some of the fields. A client must not be able to hit another
// client's namespace or to make two namespaces collide.
//
// A unit is a token id today. Images and bigrams need other units, so keys are not input ids. Unit
// hashes are chained 128-bit hashes over 16 units. They do not depend on the block size, so they
// are the same in the whole cluster.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "common/strong_int.h"

namespace baton {

struct Hash128 {
  uint64_t low = 0;
  uint64_t high = 0;

  auto operator<=>(const Hash128&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const Hash128& value) {
    return H::combine(std::move(h), value.low, value.high);
  }
};

class CacheNamespace {
 public:
  constexpr CacheNamespace() = default;
  constexpr explicit CacheNamespace(uint64_t low, uint64_t high = 0) : high_(high), low_(low) {}

  constexpr uint64_t low() const { return low_; }
  constexpr uint64_t high() const { return high_; }

  auto operator<=>(const CacheNamespace&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const CacheNamespace& value) {
    return H::combine(std::move(h), value.high_, value.low_);
  }

 private:
  uint64_t high_ = 0;
  uint64_t low_ = 0;
};

struct NamespaceFields {
  std::string_view tenant;
  std::string_view cache_salt;
  std::string_view lora;
  std::string_view model_revision;
};
CacheNamespace MakeNamespace(const NamespaceFields& fields);

using CacheUnit = uint64_t;
std::vector<CacheUnit> UnitsFromTokens(std::span<const TokenId> tokens);
// Units for draft models in which the KV of a slot depends on two tokens (EAGLE). n tokens make
// n - 1 units, one for each pair of neighbours; no tokens make none. Equal units mean equal pairs,
// and no pair equals the unit of a token. Blocks, matches and locks then count pairs. REQUIRES: no
// token is negative (CHECK).
std::vector<CacheUnit> BigramUnitsFromTokens(std::span<const TokenId> tokens);

inline constexpr int kUnitsPerHash = 16;
// First value of a hash chain: the hash of the namespace alone.
Hash128 NamespaceHash(CacheNamespace cache_namespace);
// The hash that follows `previous` in a chain.
Hash128 NextChainedHash(const Hash128& previous, std::span<const CacheUnit, kUnitsPerHash> units);
// Chained hashes of every full run of 16 units: hash[i] covers the namespace and units
// [0, 16 * (i + 1)).
std::vector<Hash128> ChainedHashes(CacheNamespace cache_namespace,
                                   std::span<const CacheUnit> units);

}  // namespace baton
