// Finds stop strings in text that arrives in parts.
//
// The first stop string that is complete ends the text. If several end at the same byte, the one
// that started first counts. The matcher emits the text before the stop string, but not the stop
// string or anything behind it. Until a stop string is complete, the matcher holds back the longest
// suffix that can still become one.
//
// Invariants:
//   1. The result does not depend on how the text is divided into parts.
//   2. Until a stop, emitted text plus held-back text equals the text so far.
//   3. If parts and stop strings consist of whole UTF-8 characters, so does the emitted text.
// Source: Aho & Corasick, "Efficient string matching" (1975). Time is linear in the text; memory is
// linear in the stop strings.
//
// Thread safety: belongs to one thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace baton {

class StopMatcher {
 public:
  // Ignores empty strings. Without stop strings, Append emits all text at once.
  explicit StopMatcher(const std::vector<std::string>& stops);

  struct Result {
    std::string emit;      // text that cannot be part of a stop string
    bool stopped = false;  // true once a stop string was found
  };

  Result Append(std::string_view text);

  // Returns the held-back text at the end of the input. Empty after a stop.
  std::string Flush();

 private:
  struct Node {
    uint32_t depth = 0;        // bytes of a stop string matched
    uint32_t failure = 0;      // node of the longest proper suffix that is in the trie
    uint32_t stop_length = 0;  // length of the longest stop string that ends here; 0: none
  };

  void AddStop(std::string_view stop);
  void LinkFailures();
  uint32_t Next(uint32_t node, char byte) const;

  std::vector<Node> nodes_ = {Node{}};             // 0 is the root
  absl::flat_hash_map<uint64_t, uint32_t> edges_;  // node << 8 | byte → node
  uint32_t state_ = 0;
  std::string held_;  // nodes_[state_].depth bytes
  bool stopped_ = false;
};

}  // namespace baton
