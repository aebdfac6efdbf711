// Byte-pair encoder: turns one pre-token into tokens.
//
// A piece starts as one token per byte. While two neighbours have a merge rule, the encoder merges
// the pair whose rule comes first in the file. If several pairs share that rule, it merges the
// leftmost. Source: Sennrich et al., "Neural Machine Translation of Rare Words with Subword Units"
// (2016), applied to bytes as in GPT-2.
//
// Invariants:
//   1. A rule's rank is its index in the list of merges. No pair has two rules.
//   2. The output contains only tokens marked as pieces, so never a control token.
//   3. A byte without a token of its own is dropped, and its neighbours become adjacent. The
//      `tokenizers` library does the same if there is no unknown token. SmolLM2 lacks 21 bytes: six
//      control characters, and bytes that UTF-8 does not use or uses for unassigned planes only.
//
// Time: O(n log n) in the piece's length; O(1) for a piece that is one token.
// Memory: about 32 bytes per byte of the piece. A piece longer than kMaxPieceBytes is encoded in
// parts of that size, which bounds the memory.
//
// Thread safety: immutable after creation. A Workspace serves one call at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "common/strong_int.h"

namespace baton {

class BytePairEncoder {
 public:
  static constexpr size_t kMaxPieceBytes = size_t{1} << 20;

  struct Vocabulary {
    std::span<const std::string> tokens;  // by id, in the byte-level alphabet; no duplicates
    std::span<const uint8_t> is_piece;    // by id: 1 if merges may use and produce the token
    std::span<const std::string> merges;  // "left right"
    // If a whole pre-token is in the vocabulary, use that token, even if no merges produce it.
    // Llama 3 does this; `tokenizers` calls it `ignore_merges`.
    bool whole_token_first = false;
  };

  // Returns InvalidArgument, naming the merge, if a merge is not a pair, occurs twice, or uses or
  // produces a string that is not a piece. REQUIRES: is_piece.size() == tokens.size().
  static absl::StatusOr<BytePairEncoder> Create(const Vocabulary& vocabulary);

  // Memory that Encode reuses from call to call. The contents do not matter between calls.
  struct Workspace {
    struct Symbol {
      TokenId id;
      uint32_t length;    // bytes it covers; 0 after it was merged into its left neighbour
      uint32_t previous;  // index, or kNone
      uint32_t next;
    };
    struct Candidate {
      uint64_t order;   // rank << 32 | index of the left symbol
      uint32_t length;  // bytes of both symbols when the candidate was made
    };
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
  };

  // Appends the tokens of `piece` to `out`.
  void Encode(std::string_view piece, Workspace& workspace, std::vector<TokenId>& out) const;

 private:
  struct Rule {
    uint32_t rank;
    TokenId merged;
  };
  struct BytesHash {  // allows look-up by std::string_view
    using is_transparent = void;
    size_t operator()(std::string_view bytes) const { return std::hash<std::string_view>()(bytes); }
  };
  // Bytes that encode to one token.
  using WholeTokens = absl::flat_hash_map<std::string, TokenId, BytesHash, std::equal_to<>>;

  BytePairEncoder() = default;
  static uint64_t PairKey(TokenId left, TokenId right) {
    return (uint64_t{static_cast<uint32_t>(left)} << 32) | static_cast<uint32_t>(right);
  }
  const Rule* FindRule(TokenId left, TokenId right) const {
    const auto it = rules_.find(PairKey(left, right));
    return it == rules_.end() ? nullptr : &it->second;
  }
  absl::Status AddRule(size_t rank, std::string_view merge,
                       const absl::flat_hash_map<std::string_view, TokenId>& pieces);
  void AddWholeTokens(const Vocabulary& vocabulary);
  // Both produce the same tokens. MergeShort rescans the piece after each merge, which is faster
  // for short pieces; MergeLong uses a heap of candidate pairs.
  void MergeShort(std::string_view piece, std::vector<TokenId>& out) const;
  void MergeLong(std::string_view piece, Workspace& workspace, std::vector<TokenId>& out) const;
  void PushCandidate(uint32_t left, Workspace& workspace) const;

  std::array<TokenId, 256> byte_tokens_;       // -1: the vocabulary lacks the byte
  absl::flat_hash_map<uint64_t, Rule> rules_;  // by PairKey
  WholeTokens whole_tokens_;
};

}  // namespace baton
