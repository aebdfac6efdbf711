#include "text/special_token_matcher.h"

namespace baton {
namespace {

uint64_t TokenEdgeKey(uint32_t node, char byte) {
  return (uint64_t{node} << 8) | static_cast<uint8_t>(byte);
}

}  // namespace

void SpecialTokenMatcher::Add(std::string_view text, TokenId id, bool is_control) {
  first_bytes_[static_cast<uint8_t>(text[0])] |= is_control ? 2 : 1;
  uint32_t node = 0;
  for (const char byte : text) {
    const auto [edge, added] =
        edges_.emplace(TokenEdgeKey(node, byte), static_cast<uint32_t>(nodes_.size()));
    if (added) nodes_.emplace_back();
    node = edge->second;
  }
  nodes_[node] = {id, is_control};
}

std::optional<SpecialTokenMatcher::Match> SpecialTokenMatcher::LongestAt(std::string_view text,
                                                                         size_t position,
                                                                         size_t trusted_end) const {
  std::optional<Match> longest;
  uint32_t node = 0;
  for (size_t end = position; end < text.size();) {
    const auto edge = edges_.find(TokenEdgeKey(node, text[end]));
    if (edge == edges_.end()) break;
    node = edge->second;
    ++end;
    const Node& reached = nodes_[node];
    if (reached.id < 0 || (reached.is_control && end > trusted_end)) continue;
    longest = Match{reached.id, end - position};
  }
  return longest;
}

}  // namespace baton
