#include "loadtest/load_request.h"

#include <array>
#include <string_view>

namespace baton {
namespace {

// With the blank before it, each word is one token in the vocabularies of common models.
constexpr std::array<std::string_view, 128> kWords = {
    "the",    "of",     "and",   "to",      "in",    "is",     "that",  "it",    "was",   "for",
    "on",     "are",    "as",    "with",    "his",   "they",   "at",    "be",    "this",  "have",
    "from",   "or",     "one",   "had",     "by",    "word",   "but",   "not",   "what",  "all",
    "were",   "we",     "when",  "your",    "can",   "said",   "there", "use",   "an",    "each",
    "which",  "she",    "do",    "how",     "their", "if",     "will",  "up",    "other", "about",
    "out",    "many",   "then",  "them",    "these", "so",     "some",  "her",   "would", "make",
    "like",   "him",    "into",  "time",    "has",   "look",   "two",   "more",  "write", "go",
    "see",    "number", "no",    "way",     "could", "people", "my",    "than",  "first", "water",
    "been",   "call",   "who",   "its",     "now",   "find",   "long",  "down",  "day",   "did",
    "get",    "come",   "made",  "may",     "part",  "over",   "new",   "sound", "take",  "only",
    "little", "work",   "know",  "place",   "year",  "live",   "me",    "back",  "give",  "most",
    "very",   "after",  "thing", "our",     "just",  "name",   "good",  "man",   "think", "say",
    "great",  "where",  "help",  "through", "much",  "before", "line",  "right"};

}  // namespace

std::vector<TokenId> AllTokens(const LoadRequest& request) {
  std::vector<TokenId> tokens;
  for (const PromptPiece& piece : request.pieces) {
    tokens.insert(tokens.end(), piece.tokens.begin(), piece.tokens.end());
  }
  return tokens;
}

std::string PieceText(const PromptPiece& piece) {
  if (piece.role == PieceRole::kAssistant) return piece.answer;
  std::string text;
  for (const TokenId token : piece.tokens) {
    if (!text.empty()) text += ' ';
    text += kWords[static_cast<uint32_t>(token) % kWords.size()];
  }
  return text;
}

}  // namespace baton
