// Byte-pair encoding: the tokens of one pre-token.
//
// The piece starts as one token per byte; then, as long as any two neighbours have a merge rule,
// the pair whose rule comes first in the file (the leftmost of several) becomes one token. Source:
// Sennrich et al., "Neural Machine Translation of Rare Words with Subword Units" (2016), on bytes
// as in GPT-2.
//
// Invariants:
//   1. A rule's rank is its place in the list of merges; no pair has two rules.
//   2. The output holds only tokens marked as pieces: a control token can never come out.
//   3. A byte that has no token of its own in the vocabulary is left out, and its neighbours meet
//   (as
//      in `tokenizers` without an unknown token). SmolLM2 lacks 21 bytes: six control characters
//      and bytes that UTF-8 does not use or uses for unassigned planes.
// Time: O(n log n) in the piece, O(1) for a piece that is one token. Memory: 32 bytes or so per
// byte of the piece; a piece longer than kMaxPieceBytes is encoded in parts of that size, which
// bounds it.
//
// Thread safety: immutable after creation; a Workspace belongs to one call at a time.
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
    std::span<const uint8_t> is_piece;    // by id: 1 where merges may use and make the token
    std::span<const std::string> merges;  // "left right"
    // A pre-token that is a token as a whole is that token, even where merges would not make it
    // (Llama 3; `ignore_merges` in `tokenizers`).
    bool whole_token_first = false;
  };

  // InvalidArgument, naming the rule, for a merge that is no pair, that names or makes a string
  // which is no piece of the vocabulary, or that stands twice. REQUIRES: is_piece.size() ==
  // tokens.size().
  static absl::StatusOr<BytePairEncoder> Create(const Vocabulary& vocabulary);

  // Memory that Encode may reuse from call to call. Each of the two vectors is a stage of the work
  // on the current piece and holds nothing between calls.
  struct Workspace {
    struct Symbol {
      TokenId id;
      uint32_t length;    // bytes it covers; 0 once merged away
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
  struct BytesHash {  // looks a std::string up by a view
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
  // Both do the same merges; the first rescans the piece for each, which is faster when it is
  // short.
  void MergeShort(std::string_view piece, std::vector<TokenId>& out) const;
  void MergeLong(std::string_view piece, Workspace& workspace, std::vector<TokenId>& out) const;
  void PushCandidate(uint32_t left, Workspace& workspace) const;

  std::array<TokenId, 256> byte_tokens_;       // -1: the vocabulary lacks the byte
  absl::flat_hash_map<uint64_t, Rule> rules_;  // by PairKey
  WholeTokens whole_tokens_;
};

}  // namespace baton
