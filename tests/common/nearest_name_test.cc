#include "common/nearest_name.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace baton {
namespace {

TEST(EditDistance, CountsInsertionsDeletionsReplacementsAndSwaps) {
  EXPECT_EQ(EditDistance("", ""), 0);
  EXPECT_EQ(EditDistance("", "abc"), 3);
  EXPECT_EQ(EditDistance("abc", ""), 3);
  EXPECT_EQ(EditDistance("abc", "abc"), 0);
  EXPECT_EQ(EditDistance("abc", "abxc"), 1);
  EXPECT_EQ(EditDistance("abc", "axc"), 1);
  EXPECT_EQ(EditDistance("abc", "acb"), 1);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3);
}

TEST(NearestName, FindsTheMostSimilarName) {
  const std::vector<std::string> names = {"--temperature", "--top-k", "--top-p", "--n"};
  EXPECT_EQ(NearestName("--tempreature", names), "--temperature");
  EXPECT_EQ(NearestName("--temp", names), "--temperature");
  EXPECT_EQ(NearestName("--topp", names), "--top-p");
  EXPECT_EQ(NearestName("temperature", names), "--temperature");
  EXPECT_EQ(NearestName("--top-k", names), "--top-k");
}

TEST(NearestName, FindsAPartOfAName) {
  const std::vector<std::string> names = {"--blocks", "--max-tokens", "--n"};
  EXPECT_EQ(NearestName("--kv-blocks", names), "--blocks");
  EXPECT_EQ(NearestName("--tokens", names), "--max-tokens");
  EXPECT_EQ(NearestName("--kens", names), "");
  EXPECT_EQ(NearestName("--best-n", names), "");
}

TEST(NearestName, ReturnsNothingWithoutASimilarName) {
  const std::vector<std::string> names = {"--temperature", "--seed"};
  EXPECT_EQ(NearestName("--model", names), "");
  EXPECT_EQ(NearestName("--", names), "");
  EXPECT_EQ(NearestName("", names), "");
  EXPECT_EQ(NearestName("--se", names), "");  // too short to tell which name is meant
  EXPECT_EQ(NearestName(std::string(1 << 20, 'x'), names), "");
  EXPECT_EQ(NearestName("--seed", {}), "");
}

TEST(UnknownName, TheMessageNamesTheNearestName) {
  const std::vector<std::string> names = {"--temperature", "--top-p"};
  EXPECT_EQ(UnknownName("option", "--topp", names),
            "there is no option --topp; did you mean --top-p?");
  EXPECT_EQ(UnknownName("command", "fly", names), "there is no command fly");
}

}  // namespace
}  // namespace baton
