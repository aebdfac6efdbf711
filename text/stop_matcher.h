// Finds stop strings in text that arrives in parts.
//
// The first stop string to be complete ends the text (of several that end at the same byte, the one
// that began first). The text before it is emitted, the stop string and all that follows is not.
// Until then the longest suffix that may still become a stop string is held back.
//
// Invariants: the outcome does not depend on how the text is cut into parts; what is emitted so far
// plus what is held back is the text so far. With stop strings and parts of whole UTF-8 characters,
// what is emitted is whole characters too.
// Source: Aho & Corasick, "Efficient string matching" (1975). Time is linear in the text, memory in
// the stop strings.
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
  // Empty strings are ignored; without any string everything is emitted at once.
  explicit StopMatcher(const std::vector<std::string>& stops);

  struct Result {
    std::string emit;      // text that is certain now
    bool stopped = false;  // a stop string was found, now or earlier
  };

  Result Append(std::string_view text);

  // What was held back, when no more text comes; nothing after a stop.
  std::string Flush();

 private:
  struct Node {
    uint32_t depth = 0;        // bytes of a stop string matched
    uint32_t failure = 0;      // the longest proper suffix that is a node too
    uint32_t stop_length = 0;  // the longest stop string that ends here; 0: none
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
