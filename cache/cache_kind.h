// Says which sequences may reuse a sequence's KV. To add a kind, add its value, its rules and its
// name here. KvCacheManager reads only the rules.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace baton {

enum class CacheKind : uint8_t {
  kNaive,      // the KV of a sequence is freed when the sequence ends
  kChunkOnly,  // only a preempted sequence reuses its own KV
  kRadix,      // requests of one namespace share their common prefixes
};

struct CacheRules {
  bool caches;   // a preempted sequence's blocks stay in the prefix tree
  bool shares;   // sequences of one namespace match each other's prefixes
  bool forgets;  // a sequence's cached blocks are dropped when it ends
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
