#include "text/byte_pair_encoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Words {
  std::vector<std::string> tokens;
  std::vector<std::string> merges;
  std::vector<uint8_t> is_piece = std::vector<uint8_t>(tokens.size(), 1);
  bool whole_token_first = false;
};

absl::StatusOr<BytePairEncoder> Create(const Words& words) {
  return BytePairEncoder::Create({.tokens = words.tokens,
                                  .is_piece = words.is_piece,
                                  .merges = words.merges,
                                  .whole_token_first = words.whole_token_first});
}

std::vector<TokenId> Encode(const BytePairEncoder& encoder, std::string_view piece) {
  BytePairEncoder::Workspace workspace;
  std::vector<TokenId> out;
  encoder.Encode(piece, workspace, out);
  return out;
}

std::string ErrorOf(const Words& words) {
  const auto encoder = Create(words);
  EXPECT_EQ(encoder.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(encoder.status().message());
}

TEST(BytePairEncoder, TheEarliestRuleMergesFirstAndTheLeftmostOfEqualPairs) {
  const auto encoder =
      Create({.tokens = {"a", "b", "c", "bc", "ab", "aa"}, .merges = {"b c", "a b", "a a"}});
  ASSERT_TRUE(encoder.ok()) << encoder.status();
  EXPECT_THAT(Encode(*encoder, "abc"), ElementsAre(0, 3));
  EXPECT_THAT(Encode(*encoder, "abb"), ElementsAre(4, 1));
  EXPECT_THAT(Encode(*encoder, "aaa"), ElementsAre(5, 0));
  EXPECT_THAT(Encode(*encoder, ""), ElementsAre());
}

TEST(BytePairEncoder, ATokenThatNoMergeMakesIsUsedOnlyWhenWholeTokensComeFirst) {
  Words words{.tokens = {"a", "b", "ab", "aba"}, .merges = {"a b"}};
  EXPECT_THAT(Encode(*Create(words), "aba"), ElementsAre(2, 0));
  words.whole_token_first = true;
  EXPECT_THAT(Encode(*Create(words), "aba"), ElementsAre(3));
  EXPECT_THAT(Encode(*Create(words), "abab"), ElementsAre(2, 2));
}

TEST(BytePairEncoder, AByteWithoutATokenIsDroppedAndItsNeighboursBecomeAdjacent) {
  const auto encoder = Create({.tokens = {"a", "b", "ab"}, .merges = {"a b"}});
  EXPECT_THAT(Encode(*encoder, "azb"), ElementsAre(2));
  EXPECT_THAT(Encode(*encoder, "zzz"), ElementsAre());
  EXPECT_THAT(Encode(*encoder, std::string(1000, 'z')), ElementsAre());
  EXPECT_THAT(Encode(*encoder, "a" + std::string(1000, 'z') + "b"), ElementsAre(2));
}

TEST(BytePairEncoder, TokensThatAreNotPiecesAreNeverProduced) {
  Words words{.tokens = {"a", "b", "ab"}, .merges = {}, .whole_token_first = true};
  words.is_piece = {1, 1, 0};
  EXPECT_THAT(Encode(*Create(words), "ab"), ElementsAre(0, 1));
}

TEST(BytePairEncoder, RefusesRulesThatDoNotFitTheVocabulary) {
  const std::vector<std::string> tokens = {"a", "b", "ab"};
  EXPECT_THAT(ErrorOf({.tokens = tokens, .merges = {"a b", "a x"}}),
              HasSubstr("merges[1]: \"a x\" has a right part"));
  EXPECT_THAT(ErrorOf({.tokens = tokens, .merges = {"x b"}}), HasSubstr("left part"));
  EXPECT_THAT(ErrorOf({.tokens = tokens, .merges = {"b a"}}), HasSubstr("produces a string"));
  EXPECT_THAT(ErrorOf({.tokens = tokens, .merges = {"a b", "a b"}}), HasSubstr("twice"));
  for (const char* merge : {"", " ", "ab", "a b c", "a  b", " b", "a "}) {
    EXPECT_THAT(ErrorOf({.tokens = tokens, .merges = {merge}}), HasSubstr("merges[0]"));
  }
  Words control{.tokens = tokens, .merges = {"a b"}};
  control.is_piece[2] = 0;
  EXPECT_THAT(ErrorOf(control), HasSubstr("not an ordinary token"));
}

// The definition of byte-pair encoding: search the whole piece for the best pair, merge it, repeat.
std::vector<TokenId> NaiveEncode(const Words& words, std::string_view piece) {
  std::map<std::string, TokenId> ids;
  for (const std::string& token : words.tokens)
    ids.emplace(token, static_cast<TokenId>(ids.size()));
  std::vector<std::string> parts;
  for (const char c : piece) parts.emplace_back(1, c);
  for (bool merged = true; merged;) {
    merged = false;
    for (const std::string& rule : words.merges) {
      const size_t space = rule.find(' ');
      for (size_t i = 0; i + 1 < parts.size(); ++i) {
        if (parts[i] + " " + parts[i + 1] != rule) continue;
        parts[i] = rule.substr(0, space) + rule.substr(space + 1);
        parts.erase(parts.begin() + i + 1);
        merged = true;
        break;
      }
      if (merged) break;
    }
  }
  std::vector<TokenId> out;
  for (const std::string& part : parts) out.push_back(ids.at(part));
  return out;
}

TEST(BytePairEncoder, EqualsTheDefinitionOnRandomRulesShortAndLong) {
  const unsigned seed = 29;
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 150; ++round) {
    Words words{.tokens = {"a", "b", "c"}, .merges = {}};
    for (int i = 0; i < 25; ++i) {
      const std::string left = words.tokens[random() % words.tokens.size()];
      const std::string right = words.tokens[random() % words.tokens.size()];
      const std::string rule = left + " " + right;
      if (std::count(words.merges.begin(), words.merges.end(), rule) > 0) continue;
      words.merges.push_back(rule);
      if (std::count(words.tokens.begin(), words.tokens.end(), left + right) == 0) {
        words.tokens.push_back(left + right);
      }
    }
    // Half of the rounds have rules in an order that no training could produce.
    if (round % 2 == 1) std::shuffle(words.merges.begin(), words.merges.end(), random);
    words.is_piece.assign(words.tokens.size(), 1);
    const auto encoder = Create(words);
    ASSERT_TRUE(encoder.ok()) << encoder.status();
    for (const size_t length : {1, 2, 5, 20, 47, 48, 49, 50, 200}) {
      std::string piece(length, 'a');
      for (char& c : piece) c = static_cast<char>('a' + random() % (1 + round % 3));
      ASSERT_EQ(Encode(*encoder, piece), NaiveEncode(words, piece)) << piece;
    }
  }
}

TEST(BytePairEncoder, APieceLongerThanTheLimitIsEncodedInParts) {
  const auto encoder = Create({.tokens = {"a", "b", "aa"}, .merges = {"a a"}});
  // The cut leaves an odd number of "a" on each side. Without the cut, there is one token fewer.
  const size_t limit = BytePairEncoder::kMaxPieceBytes;
  EXPECT_EQ(Encode(*encoder, "b" + std::string(limit - 2, 'a')).size(), 1 + (limit - 2) / 2);
  EXPECT_EQ(Encode(*encoder, "b" + std::string(2 * limit, 'a')).size(), limit + 2);
}

}  // namespace
}  // namespace baton
