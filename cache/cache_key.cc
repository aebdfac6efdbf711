#include "cache/cache_key.h"

#include <openssl/sha.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <string>

#include "common/check.h"

namespace baton {
namespace {

static_assert(std::endian::native == std::endian::little, "unit bytes are hashed as stored");

// Input of one chained hash: the hash before it, then 16 units.
struct HashInput {
  Hash128 previous;
  std::array<CacheUnit, kUnitsPerHash> units;
};
static_assert(sizeof(HashInput) == 16 + 8 * kUnitsPerHash, "no padding is hashed");

Hash128 HashBytes(const void* data, size_t size) {
  const XXH128_hash_t hash = XXH3_128bits(data, size);
  return {.low = hash.low64, .high = hash.high64};
}

}  // namespace

CacheNamespace MakeNamespace(const NamespaceFields& fields) {
  std::string bytes;
  for (const std::string_view field :
       {fields.tenant, fields.cache_salt, fields.lora, fields.model_revision}) {
    const uint64_t length = field.size();
    bytes.append(reinterpret_cast<const char*>(&length), sizeof(length));
    bytes.append(field);
  }
  std::array<uint8_t, SHA256_DIGEST_LENGTH> digest;
  CHECK(SHA256(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), digest.data()) !=
        nullptr);
  uint64_t high = 0;
  uint64_t low = 0;
  for (size_t i = 0; i < sizeof(uint64_t); ++i) {
    high = high << 8 | digest[i];
    low = low << 8 | digest[sizeof(uint64_t) + i];
  }
  return CacheNamespace(low, high);
}

std::vector<CacheUnit> UnitsFromTokens(std::span<const TokenId> tokens) {
  std::vector<CacheUnit> units(tokens.size());
  std::transform(tokens.begin(), tokens.end(), units.begin(),
                 [](TokenId token) { return CacheUnit{static_cast<uint32_t>(token)}; });
  return units;
}

std::vector<CacheUnit> BigramUnitsFromTokens(std::span<const TokenId> tokens) {
  constexpr CacheUnit kPair = CacheUnit{1} << 63;  // no token's unit has this bit
  std::vector<CacheUnit> units;
  units.reserve(tokens.size());
  for (size_t i = 0; i + 1 < tokens.size(); ++i) {
    CHECK(tokens[i] >= 0 && tokens[i + 1] >= 0) << "tokens " << tokens[i] << ", " << tokens[i + 1];
    units.push_back(kPair | CacheUnit{static_cast<uint32_t>(tokens[i])} << 32 |
                    static_cast<uint32_t>(tokens[i + 1]));
  }
  return units;
}

Hash128 NamespaceHash(CacheNamespace cache_namespace) {
  const std::array<uint64_t, 2> seed = {cache_namespace.low(), cache_namespace.high()};
  return HashBytes(seed.data(), sizeof(seed));
}

Hash128 NextChainedHash(const Hash128& previous, std::span<const CacheUnit, kUnitsPerHash> units) {
  HashInput input{.previous = previous, .units = {}};
  std::copy(units.begin(), units.end(), input.units.begin());
  return HashBytes(&input, sizeof(input));
}

std::vector<Hash128> ChainedHashes(CacheNamespace cache_namespace,
                                   std::span<const CacheUnit> units) {
  std::vector<Hash128> hashes(units.size() / kUnitsPerHash);
  Hash128 previous = NamespaceHash(cache_namespace);
  for (size_t i = 0; i < hashes.size(); ++i) {
    previous = NextChainedHash(previous, units.subspan(i * kUnitsPerHash).first<kUnitsPerHash>());
    hashes[i] = previous;
  }
  return hashes;
}

}  // namespace baton
