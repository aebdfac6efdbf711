#include "router/http/served_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton {
namespace {

using ::testing::ElementsAre;

TEST(ServedNames, TheModelsOwnNameComesFirstAndNoneTwice) {
  const ServedNames names(" gpt-x,org/model,,gpt-x , own");
  EXPECT_THAT(names.All("own"), ElementsAre("own", "gpt-x", "org/model"));
  EXPECT_TRUE(names.Has("own", "own"));
  EXPECT_TRUE(names.Has("own", "org/model"));
  EXPECT_FALSE(names.Has("own", "org"));
  EXPECT_FALSE(names.Has("own", ""));
}

TEST(ServedNames, WithoutMoreNamesOnlyTheModelsOwnCounts) {
  EXPECT_THAT(ServedNames("").All("a b"), ElementsAre("a b"));
}

}  // namespace
}  // namespace baton
