#include "cache/cache_key.h"

#include <gtest/gtest.h>

#include <set>

namespace baton {
namespace {

std::vector<CacheUnit> Counting(int count) {
  std::vector<CacheUnit> units;
  for (int i = 0; i < count; ++i) units.push_back(i);
  return units;
}

TEST(CacheNamespace, FieldsAreLengthTaggedSoThatShiftedTextDiffers) {
  const std::set<CacheNamespace> distinct = {
      MakeNamespace({}),
      MakeNamespace({.tenant = "a", .cache_salt = "bc", .lora = {}, .model_revision = {}}),
      MakeNamespace({.tenant = "ab", .cache_salt = "c", .lora = {}, .model_revision = {}}),
      MakeNamespace({.tenant = "abc", .cache_salt = {}, .lora = {}, .model_revision = {}}),
      MakeNamespace({.tenant = {}, .cache_salt = "abc", .lora = {}, .model_revision = {}}),
      MakeNamespace({.tenant = {}, .cache_salt = {}, .lora = "abc", .model_revision = {}}),
      MakeNamespace({.tenant = {}, .cache_salt = {}, .lora = {}, .model_revision = "abc"})};
  EXPECT_EQ(distinct.size(), 7u);
  EXPECT_EQ(MakeNamespace({.tenant = "a", .cache_salt = "b", .lora = "c", .model_revision = "d"}),
            MakeNamespace({.tenant = "a", .cache_salt = "b", .lora = "c", .model_revision = "d"}));
}

TEST(CacheNamespace, IsTheFirstHalfOfTheDigest) {
  // SHA-256 of four zero lengths, which are 32 zero bytes: 66687aadf862bd77 6c8fc18b8e9f8e20 …
  const CacheNamespace none = MakeNamespace({});
  EXPECT_EQ(none.high(), 0x66687aadf862bd77u);
  EXPECT_EQ(none.low(), 0x6c8fc18b8e9f8e20u);
  // Each field follows its length in 8 bytes. The expected value is from Python's hashlib.
  const CacheNamespace all = MakeNamespace(
      {.tenant = "tenant", .cache_salt = "salt", .lora = "lora", .model_revision = "revision"});
  EXPECT_EQ(all.high(), 0xecc6b122bc3fda39u);
  EXPECT_EQ(all.low(), 0x94c45ef2d7cc4e89u);
}

TEST(CacheNamespace, BothHalvesCount) {
  const CacheNamespace one(1, 2);
  const auto units = Counting(16);
  for (const CacheNamespace other :
       {CacheNamespace(1, 3), CacheNamespace(2, 2), CacheNamespace(1)}) {
    EXPECT_NE(one, other);
    EXPECT_NE(NamespaceHash(one), NamespaceHash(other));
    EXPECT_NE(ChainedHashes(one, units), ChainedHashes(other, units));
  }
}

TEST(ChainedHashes, CoverFullRunsOnly) {
  const CacheNamespace ns(1);
  EXPECT_TRUE(ChainedHashes(ns, Counting(15)).empty());
  EXPECT_EQ(ChainedHashes(ns, Counting(16)).size(), 1u);
  EXPECT_EQ(ChainedHashes(ns, Counting(47)).size(), 2u);
}

TEST(ChainedHashes, AgreeOnASharedPrefixAndDifferBehindTheFirstDifference) {
  const CacheNamespace ns(1);
  std::vector<CacheUnit> units = Counting(64);
  const auto before = ChainedHashes(ns, units);
  units[20] ^= CacheUnit{1} << 63;
  const auto after = ChainedHashes(ns, units);
  EXPECT_EQ(before[0], after[0]);
  for (int i = 1; i < 4; ++i) EXPECT_NE(before[i], after[i]);
}

TEST(ChainedHashes, DifferBetweenNamespaces) {
  const auto units = Counting(32);
  EXPECT_NE(ChainedHashes(CacheNamespace(1), units)[0], ChainedHashes(CacheNamespace(2), units)[0]);
  EXPECT_NE(ChainedHashes(CacheNamespace(1), units)[1], ChainedHashes(CacheNamespace(2), units)[1]);
}

TEST(UnitsFromTokens, KeepEveryTokenApart) {
  const std::vector<TokenId> tokens = {0, 1, 151645, INT32_MAX, -1};
  const auto units = UnitsFromTokens(tokens);
  EXPECT_EQ(std::set<CacheUnit>(units.begin(), units.end()).size(), tokens.size());
  EXPECT_EQ(units[2], 151645u);
}

TEST(CacheKey, BigramUnitsAreOnePerPairAndInjective) {
  const auto bigrams = [](std::vector<TokenId> tokens) { return BigramUnitsFromTokens(tokens); };
  EXPECT_TRUE(bigrams({}).empty());
  EXPECT_TRUE(bigrams({5}).empty());
  EXPECT_EQ(bigrams({1, 2, 3, 4}).size(), 3u);
  EXPECT_EQ(bigrams({9, 1, 2})[1], bigrams({1, 2})[0]) << "a pair depends only on its two tokens";
  std::set<CacheUnit> units;
  const std::vector<TokenId> tokens = {0, 1, 2, 255, 256, 65535, 65536, INT32_MAX};
  for (const TokenId a : tokens) {
    for (const TokenId b : tokens) units.insert(bigrams({a, b})[0]);
  }
  EXPECT_EQ(units.size(), tokens.size() * tokens.size());
  for (const CacheUnit token : UnitsFromTokens(tokens)) units.insert(token);
  EXPECT_EQ(units.size(), tokens.size() * tokens.size() + tokens.size())
      << "no pair equals the unit of a token";
}

}  // namespace
}  // namespace baton
