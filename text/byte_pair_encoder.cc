#include "text/byte_pair_encoder.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "text/byte_alphabet.h"

namespace baton {
namespace {

constexpr TokenId kNoToken = -1;
constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
constexpr size_t kShortPieceBytes = 48;

using Workspace = BytePairEncoder::Workspace;

// Heap order: the lowest rank is on top; within a rank, the leftmost pair.
bool ComesLater(const Workspace::Candidate& a, const Workspace::Candidate& b) {
  return a.order > b.order;
}

}  // namespace

absl::StatusOr<BytePairEncoder> BytePairEncoder::Create(const Vocabulary& vocabulary) {
  absl::flat_hash_map<std::string_view, TokenId> pieces;
  pieces.reserve(vocabulary.tokens.size());
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (vocabulary.is_piece[id]) pieces[vocabulary.tokens[id]] = static_cast<TokenId>(id);
  }
  BytePairEncoder encoder;
  for (int byte = 0; byte < 256; ++byte) {
    const auto it = pieces.find(ByteToAlphabet(static_cast<uint8_t>(byte)));
    encoder.byte_tokens_[byte] = it == pieces.end() ? kNoToken : it->second;
  }
  encoder.rules_.reserve(vocabulary.merges.size());
  for (size_t rank = 0; rank < vocabulary.merges.size(); ++rank) {
    RETURN_IF_ERROR(encoder.AddRule(rank, vocabulary.merges[rank], pieces));
  }
  encoder.AddWholeTokens(vocabulary);
  return encoder;
}

absl::Status BytePairEncoder::AddRule(
    size_t rank, std::string_view merge,
    const absl::flat_hash_map<std::string_view, TokenId>& pieces) {
  const auto error = [&](const char* what) {
    return absl::InvalidArgumentError(
        absl::StrCat("tokenizer.ggml.merges[", rank, "]: \"", std::string(merge), "\" ", what));
  };
  const size_t space = merge.find(' ');
  if (space == std::string_view::npos || merge.find(' ', space + 1) != std::string_view::npos) {
    return error("is not a pair separated by one space");
  }
  const std::string left_text(merge.substr(0, space));
  const std::string right_text(merge.substr(space + 1));
  const auto left = pieces.find(left_text);
  const auto right = pieces.find(right_text);
  const std::string merged_text = left_text + right_text;
  const auto merged = pieces.find(merged_text);
  if (left == pieces.end()) return error("has a left part that is not an ordinary token");
  if (right == pieces.end()) return error("has a right part that is not an ordinary token");
  if (merged == pieces.end()) return error("produces a string that is not an ordinary token");
  const bool added = rules_
                         .emplace(PairKey(left->second, right->second),
                                  Rule{static_cast<uint32_t>(rank), merged->second})
                         .second;
  return added ? absl::OkStatus() : error("occurs twice in the list");
}

// Most pre-tokens of ordinary text are one token, so Encode first looks the whole pre-token up.
// This function fills that table with every token that its own bytes encode to. Other pre-tokens
// still need the merges.
void BytePairEncoder::AddWholeTokens(const Vocabulary& vocabulary) {
  Workspace workspace;
  std::vector<TokenId> encoded;
  WholeTokens whole_tokens;
  whole_tokens.reserve(vocabulary.tokens.size());
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (!vocabulary.is_piece[id]) continue;
    std::optional<std::string> bytes = BytesFromAlphabet(vocabulary.tokens[id]);
    if (!bytes.has_value() || bytes->empty()) continue;
    encoded.clear();
    Encode(*bytes, workspace, encoded);
    if (vocabulary.whole_token_first ||
        (encoded.size() == 1 && encoded[0] == static_cast<TokenId>(id))) {
      whole_tokens.emplace(*std::move(bytes), static_cast<TokenId>(id));
    }
  }
  whole_tokens_ = std::move(whole_tokens);
}

void BytePairEncoder::Encode(std::string_view piece, Workspace& workspace,
                             std::vector<TokenId>& out) const {
  if (const auto it = whole_tokens_.find(piece); it != whole_tokens_.end()) {
    out.push_back(it->second);
    return;
  }
  for (; !piece.empty(); piece.remove_prefix(std::min(piece.size(), kMaxPieceBytes))) {
    const std::string_view part = piece.substr(0, kMaxPieceBytes);
    if (part.size() <= kShortPieceBytes) {
      MergeShort(part, out);
    } else {
      MergeLong(part, workspace, out);
    }
  }
}

void BytePairEncoder::MergeShort(std::string_view piece, std::vector<TokenId>& out) const {
  std::array<TokenId, kShortPieceBytes> ids;
  std::array<const Rule*, kShortPieceBytes> rules;  // rules[i] joins ids[i] and ids[i + 1]
  size_t count = 0;
  for (const char c : piece) {
    const TokenId id = byte_tokens_[static_cast<uint8_t>(c)];
    if (id != kNoToken) ids[count++] = id;
  }
  for (size_t i = 0; i + 1 < count; ++i) rules[i] = FindRule(ids[i], ids[i + 1]);
  while (count > 1) {
    size_t best = count;
    for (size_t i = 0; i + 1 < count; ++i) {
      if (rules[i] != nullptr && (best == count || rules[i]->rank < rules[best]->rank)) best = i;
    }
    if (best == count) break;
    ids[best] = rules[best]->merged;
    std::copy(ids.begin() + best + 2, ids.begin() + count, ids.begin() + best + 1);
    std::copy(rules.begin() + best + 1, rules.begin() + count - 1, rules.begin() + best);
    --count;
    if (best + 1 < count) rules[best] = FindRule(ids[best], ids[best + 1]);
    if (best > 0) rules[best - 1] = FindRule(ids[best - 1], ids[best]);
  }
  out.insert(out.end(), ids.begin(), ids.begin() + count);
}

void BytePairEncoder::PushCandidate(uint32_t left, Workspace& workspace) const {
  const Workspace::Symbol& symbol = workspace.symbols[left];
  if (symbol.next == kNone) return;
  const Workspace::Symbol& next = workspace.symbols[symbol.next];
  const Rule* const rule = FindRule(symbol.id, next.id);
  if (rule == nullptr) return;
  workspace.heap.push_back({(uint64_t{rule->rank} << 32) | left, symbol.length + next.length});
}

void BytePairEncoder::MergeLong(std::string_view piece, Workspace& workspace,
                                std::vector<TokenId>& out) const {
  auto& symbols = workspace.symbols;
  auto& heap = workspace.heap;
  symbols.clear();
  heap.clear();
  for (const char c : piece) {
    const TokenId id = byte_tokens_[static_cast<uint8_t>(c)];
    if (id == kNoToken) continue;
    const auto index = static_cast<uint32_t>(symbols.size());
    symbols.push_back({id, 1, index == 0 ? kNone : index - 1, index + 1});
  }
  if (symbols.empty()) return;
  symbols.back().next = kNone;
  for (uint32_t i = 0; i < symbols.size(); ++i) PushCandidate(i, workspace);
  std::make_heap(heap.begin(), heap.end(), ComesLater);

  const auto push_candidate = [&](uint32_t left) {
    const size_t before = heap.size();
    PushCandidate(left, workspace);
    if (heap.size() > before) std::push_heap(heap.begin(), heap.end(), ComesLater);
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), ComesLater);
    const Workspace::Candidate candidate = heap.back();
    heap.pop_back();
    const auto left = static_cast<uint32_t>(candidate.order);
    Workspace::Symbol& symbol = symbols[left];
    // Symbols only grow, so a pair that still covers the same number of bytes is unchanged.
    if (symbol.length == 0 || symbol.next == kNone) continue;
    Workspace::Symbol& absorbed = symbols[symbol.next];
    if (symbol.length + absorbed.length != candidate.length) continue;
    symbol.id = FindRule(symbol.id, absorbed.id)->merged;
    symbol.length += absorbed.length;
    symbol.next = absorbed.next;
    absorbed.length = 0;
    if (symbol.next != kNone) symbols[symbol.next].previous = left;
    push_candidate(left);
    if (symbol.previous != kNone) push_candidate(symbol.previous);
  }
  for (uint32_t i = 0; i != kNone; i = symbols[i].next) out.push_back(symbols[i].id);
}

}  // namespace baton
