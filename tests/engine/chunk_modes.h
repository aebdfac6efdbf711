// The modes of chunked prompts.
#pragma once

#include <vector>

#include "common/prompt_chunks.h"

namespace baton {

inline std::vector<ChunkOptions> EveryMode() {
  std::vector<ChunkOptions> modes;
  for (const auto positions : {ChunkPositions::kOverlap, ChunkPositions::kSequential}) {
    for (const auto scope : {ChunkScope::kSystem, ChunkScope::kAlone}) {
      modes.push_back({.positions = positions, .scope = scope});
    }
  }
  return modes;
}

}  // namespace baton
