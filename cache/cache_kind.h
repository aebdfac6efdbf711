// Which sequences may find a sequence's KV again. A further kind is a value, its rules and its name
// here; KvCacheManager asks for the rules alone.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace baton {

enum class CacheKind : uint8_t {
  kNaive,      // a sequence's KV ends with it
  kChunkOnly,  // a preempted sequence finds what it had computed; no other sequence does
  kRadix,      // requests of one namespace share their common prefixes
};

struct CacheRules {
  bool caches;   // a preempted sequence's blocks stay in the prefix tree
  bool shares;   // sequences of one namespace find each other's prefixes
  bool forgets;  // what a sequence cached goes with its end
};

constexpr CacheRules RulesOf(CacheKind kind) {
  switch (kind) {
    case CacheKind::kNaive:
      return {.caches = false, .shares = false, .forgets = false};
    case CacheKind::kChunkOnly:
      return {.caches = true, .shares = false, .forgets = true};
    case CacheKind::kRadix:
      return {.caches = true, .shares = true, .forgets = false};
  }
  return {};
}

// The values of --cache-kind, the default first.
inline std::vector<std::pair<std::string, CacheKind>> CacheKindNames() {
  return {{"radix", CacheKind::kRadix},
          {"chunk-only", CacheKind::kChunkOnly},
          {"naive", CacheKind::kNaive}};
}

}  // namespace baton
