// A model as the engine, the cache, transfers and status know it, whatever its architecture.
//
// Thread safety: plain data.
#pragma once

#include <cstdint>
#include <string>

#include "cache/kv_cache_spec.h"
#include "common/check.h"

namespace baton {

struct ModelSpec {
  std::string architecture = {};  // general.architecture of its file
  std::string name = {};          // general.name of its file, or empty
  int32_t vocabulary = 0;
  int32_t context_length = 0;  // tokens
  int32_t layers = 0;
  int32_t hidden = 0;
  KvCacheSpec kv = {};          // the operator chooses the cells' type: KvGroup
  std::string rope = {};        // canonical text of the RoPE parameters, for fingerprints
  std::string dimensions = {};  // its sizes in the architecture's own words, for people

  // The model's one KV group, with cells of `type`. REQUIRES: kv.groups.size() == 1, which
  // LoadModel checks.
  KvGroupSpec KvGroup(KvType type) const {
    CHECK_EQ(kv.groups.size(), 1u);
    KvGroupSpec group = kv.groups.front();
    group.type = type;
    return group;
  }
};

}  // namespace baton
