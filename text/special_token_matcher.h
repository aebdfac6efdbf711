// Finds special tokens (control and user-defined) in text.
//
// It is a trie over bytes. Matches are leftmost-longest, as in `tokenizers`; the caller tries one
// position after the other. A control token matches only if all its bytes are trusted. User text
// therefore cannot form a control token, even together with the template's text around it.
// Time per position: at most the length of the longest special token.
//
// Thread safety: immutable once filled.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/strong_int.h"

namespace baton {

class SpecialTokenMatcher {
 public:
  struct Match {
    TokenId id;
    size_t length;  // bytes
  };

  // REQUIRES: text is not empty and was not added before.
  void Add(std::string_view text, TokenId id, bool is_control);

  // Returns the longest special token that starts at `position`. A control token must end at or
  // before `trusted_end`.
  std::optional<Match> LongestAt(std::string_view text, size_t position, size_t trusted_end) const;

  // Returns true if some special token starts with `byte`. `with_control` includes control tokens.
  bool MayBegin(char byte, bool with_control) const {
    return (first_bytes_[static_cast<uint8_t>(byte)] & (with_control ? 3 : 1)) != 0;
  }

 private:
  struct Node {
    TokenId id = -1;  // -1: no token ends here
    bool is_control = false;
  };

  std::array<uint8_t, 256> first_bytes_{};         // bit 0: user-defined, bit 1: control
  std::vector<Node> nodes_ = {Node{}};             // 0 is the root
  absl::flat_hash_map<uint64_t, uint32_t> edges_;  // node << 8 | byte → node
};

}  // namespace baton
