// Description of a model, independent of its architecture. The engine, the cache, transfers and
// status use it.
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
  KvCacheSpec kv = {};          // the operator chooses the element type: KvOfType
  std::string rope = {};        // canonical text of the RoPE parameters, for fingerprints
  std::string dimensions = {};  // its sizes in the architecture's own terms, for people

  // Returns the KV groups with elements of `type`.
  KvCacheSpec KvOfType(KvType type) const {
    KvCacheSpec spec = kv;
    for (KvGroupSpec& group : spec.groups) group.type = type;
    return spec;
  }
};

}  // namespace baton
