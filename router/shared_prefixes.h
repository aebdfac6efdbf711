// Tree of the prefixes that prompts share, with the number of workers that hold each: what routing
// sees of them. A node is a run of units of 16 tokens that the same prompts have.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "cache/cache_key.h"

namespace baton {

// One prompt: its chained hashes, and how many leading units each worker holds.
struct KnownPrompt {
  std::vector<Hash128> hashes;
  std::vector<int32_t> held_units;  // of each worker that holds any
};

struct PrefixNode {
  uint64_t hash = 0;                      // a part of the hash of the last unit
  int32_t units = 0;                      // of this node alone
  int32_t prompts = 0;                    // that begin with everything up to here
  int32_t workers = 0;                    // that hold everything up to here
  std::vector<PrefixNode> children = {};  // those with the most prompts first
};

// Returns the roots. A node with one prompt has no children: its rest is one run.
std::vector<PrefixNode> SharedPrefixes(std::span<const KnownPrompt> prompts);

}  // namespace baton
