#include "router/shared_prefixes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

// Chained, like real ones: each hash covers the letters before it.
KnownPrompt Prompt(const std::string& letters, std::vector<int32_t> held = {}) {
  KnownPrompt out;
  uint64_t chain = 1;
  for (const char c : letters) {
    chain = chain * 0x9e3779b97f4a7c15 + static_cast<uint64_t>(c);
    out.hashes.push_back({.low = chain, .high = 7});
  }
  out.held_units = std::move(held);
  return out;
}

void Describe(const std::vector<PrefixNode>& nodes, int depth, std::vector<std::string>& out) {
  for (const PrefixNode& node : nodes) {
    out.push_back(absl::StrCat(std::string(static_cast<size_t>(depth), ' '), node.units, " units ",
                               node.prompts, " prompts ", node.workers, " workers"));
    Describe(node.children, depth + 1, out);
  }
}
std::vector<std::string> Describe(const std::vector<KnownPrompt>& prompts) {
  std::vector<std::string> out;
  Describe(SharedPrefixes(prompts), 0, out);
  return out;
}

TEST(SharedPrefixes, PromptsThatBeginAlikeShareANode) {
  EXPECT_THAT(Describe({Prompt("systemone"), Prompt("systemtwo"), Prompt("systemtwothree"),
                        Prompt("other")}),
              ElementsAre("6 units 3 prompts 0 workers",    //
                          " 3 units 2 prompts 0 workers",   // two
                          "  5 units 1 prompts 0 workers",  // three
                          " 3 units 1 prompts 0 workers",   // one
                          "5 units 1 prompts 0 workers"));
}

TEST(SharedPrefixes, ANodeCountsTheWorkersThatHoldAllOfIt) {
  EXPECT_THAT(Describe({Prompt("abcd", {4, 2, 1}), Prompt("abxy", {2, 2, 1})}),
              UnorderedElementsAre("2 units 2 prompts 2 workers", " 2 units 1 prompts 1 workers",
                                   " 2 units 1 prompts 0 workers"));
}

TEST(SharedPrefixes, NoPromptsHaveNoTree) {
  EXPECT_THAT(Describe({}), IsEmpty());
  EXPECT_THAT(Describe({Prompt("")}), IsEmpty());
}

// The prompts that pass through a node, and its depth, by a naive count.
TEST(SharedPrefixes, CountAsANaiveModelDoes) {
  for (int seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    std::vector<KnownPrompt> prompts;
    std::map<std::pair<uint64_t, size_t>, int32_t> count;  // by hash and length
    for (int i = 0; i < 12; ++i) {
      std::string letters;
      for (size_t length = random() % 8; letters.size() < length;) {
        letters.push_back(static_cast<char>('a' + random() % 2));
      }
      prompts.push_back(Prompt(letters));
      const std::vector<Hash128>& hashes = prompts.back().hashes;
      for (size_t at = 0; at < hashes.size(); ++at) ++count[{hashes[at].low, at + 1}];
    }
    struct Visit {
      const PrefixNode* node;
      size_t before;
    };
    const std::vector<PrefixNode> roots = SharedPrefixes(prompts);
    std::vector<Visit> visits;
    for (const PrefixNode& root : roots) visits.push_back({&root, 0});
    size_t units = 0;
    for (size_t i = 0; i < visits.size(); ++i) {
      const auto [node, before] = visits[i];
      const size_t end = before + static_cast<size_t>(node->units);
      EXPECT_EQ(node->prompts, (count[{node->hash, end}]));
      units += static_cast<size_t>(node->units);
      for (const PrefixNode& child : node->children) visits.push_back({&child, end});
    }
    EXPECT_EQ(units, count.size()) << "every unit is in one node";
  }
}

}  // namespace
}  // namespace baton
