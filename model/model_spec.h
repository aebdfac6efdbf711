// A model as the engine, the cache, transfers and status know it, whatever its architecture.
//
// Thread safety: plain data.
#pragma once

#include <cstdint>
#include <string>

#include "cache/kv_cache_spec.h"

namespace baton {

struct ModelSpec {
  std::string architecture = {};  // general.architecture of its file
  std::string name = {};          // general.name of its file, or empty
  int32_t vocabulary = 0;
  int32_t context_length = 0;  // tokens
  int32_t layers = 0;
  int32_t hidden = 0;
  KvCacheSpec kv = {};          // the operator chooses the cells' type: KvOfType
  std::string rope = {};        // canonical text of the RoPE parameters, for fingerprints
  std::string dimensions = {};  // its sizes in the architecture's own words, for people

  // Its KV groups, with cells of `type`.
  KvCacheSpec KvOfType(KvType type) const {
    KvCacheSpec spec = kv;
    for (KvGroupSpec& group : spec.groups) group.type = type;
    return spec;
  }
};

}  // namespace baton
