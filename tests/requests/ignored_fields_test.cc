#include "requests/ignored_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace baton {
namespace {

using ::testing::ElementsAre;

TEST(IgnoredFields, ANameIsRememberedOnceForAllIndexes) {
  const JsonPlace root("{}", kNotALine);
  const JsonPlace messages = root.Member("messages");
  IgnoredFields ignored;
  for (size_t i = 0; i < 3; ++i) {
    const JsonPlace message = messages.Element(i);
    ignored.Add(message.Member("name"));
  }
  ignored.Add(root.Member("x"));
  EXPECT_THAT(ignored.names(), ElementsAre("messages[].name", "x"));
}

TEST(IgnoredFields, TheNumberOfNamesIsBounded) {
  const JsonPlace root("{}", kNotALine);
  IgnoredFields ignored;
  for (int i = 0; i < 1000; ++i) {
    const std::string name = "x" + std::to_string(i);
    ignored.Add(root.Member(name));
  }
  EXPECT_EQ(ignored.names().size(), IgnoredFields::kMostNames);
}

}  // namespace
}  // namespace baton
