#include "cache/cache_kind.h"

#include <gtest/gtest.h>

#include <set>

namespace baton {
namespace {

TEST(CacheKind, NamesAreUniqueAndTheFirstKindSharesPrefixes) {
  std::set<std::string> names;
  std::set<CacheKind> kinds;
  for (const auto& [name, kind] : CacheKindNames()) {
    names.insert(name);
    kinds.insert(kind);
  }
  EXPECT_EQ(names.size(), CacheKindNames().size());
  EXPECT_EQ(kinds.size(), CacheKindNames().size());
  EXPECT_TRUE(RulesOf(CacheKindNames().front().second).shares);
}

TEST(CacheKind, OnlyACacheCanShareOrForget) {
  for (const auto& [name, kind] : CacheKindNames()) {
    const CacheRules rules = RulesOf(kind);
    EXPECT_TRUE(rules.caches || (!rules.shares && !rules.forgets)) << name;
    EXPECT_FALSE(rules.shares && rules.forgets) << name;
  }
}

}  // namespace
}  // namespace baton
