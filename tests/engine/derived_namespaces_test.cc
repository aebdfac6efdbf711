#include "engine/derived_namespaces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr CacheNamespace kBase{1}, kOther{2};

TEST(DerivedNamespaces, BelongToTheNamespaceOfTheirChunks) {
  DerivedNamespaces derived([](CacheNamespace) { return true; });
  derived.Add(CacheNamespace{20}, kBase);
  derived.Add(CacheNamespace{10}, kBase);
  derived.Add(CacheNamespace{30}, kOther);
  derived.Add(CacheNamespace{10}, kBase);
  EXPECT_THAT(derived.Of(kBase), ElementsAre(CacheNamespace{10}, CacheNamespace{20}));
  EXPECT_THAT(derived.Of(CacheNamespace{3}), IsEmpty());
}

TEST(DerivedNamespaces, ThoseWithoutACachedAnswerAreForgotten) {
  std::set<CacheNamespace> cached;
  DerivedNamespaces derived([&](CacheNamespace at) { return cached.contains(at); });
  for (uint64_t i = 1; i <= 10'000; ++i) {
    const CacheNamespace space{i};
    if (i % 100 == 0) cached.insert(space);
    derived.Add(space, kBase);
    ASSERT_LE(derived.size(), 2 * cached.size() + DerivedNamespaces::kFirstCheck);
  }
  const std::vector<CacheNamespace> left = derived.Of(kBase);
  EXPECT_TRUE(std::includes(left.begin(), left.end(), cached.begin(), cached.end()));
}

}  // namespace
}  // namespace baton
