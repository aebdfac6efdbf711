// What a prefix is known by: a namespace and a run of 64-bit units.
//
// The namespace is the hash of length-tagged fields (tenant, cache salt, LoRA, model revision), so
// that ("a","bc") and ("ab","c") differ; it comes first in every key, so that no lookup can cross
// it. The hash is SHA-256's first 128 bits: a client chooses some of the fields, and nobody may be
// able to choose them into another's namespace, nor two of them into one. A unit is a token id
// today; images and bigrams are other units, which is why keys are not input ids. Unit hashes are
// chained 128-bit hashes over 16 units, the same in the whole cluster whatever the block size.
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
// Keys for draft models whose KV of a slot depends on two tokens (EAGLE): n tokens give n - 1 units
// (none give none), one for each pair of neighbours. Equal units mean equal pairs, and no pair
// equals a token's unit. Blocks, matches and locks then count pairs. REQUIRES: no token is negative
// (CHECK).
std::vector<CacheUnit> BigramUnitsFromTokens(std::span<const TokenId> tokens);

inline constexpr int kUnitsPerHash = 16;
// What a chain begins with: the hash of the namespace alone.
Hash128 NamespaceHash(CacheNamespace cache_namespace);
// The hash that follows `previous` in a chain.
Hash128 NextChainedHash(const Hash128& previous, std::span<const CacheUnit, kUnitsPerHash> units);
// Chained hashes of every full run of 16 units: hash[i] covers units [0, 16 * (i + 1)) and the
// namespace.
std::vector<Hash128> ChainedHashes(CacheNamespace cache_namespace,
                                   std::span<const CacheUnit> units);

}  // namespace baton
