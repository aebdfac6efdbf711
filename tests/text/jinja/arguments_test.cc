#include "text/jinja/arguments.h"

#include "gtest/gtest.h"

namespace baton {
namespace {

constexpr std::string_view kParameters[] = {"a", "b"};

TEST(JinjaArguments, BindByPlaceAndByName) {
  JinjaMeter meter({});
  const auto bound = BindJinjaArguments("f", {{JinjaValue::Int(1)}, {{"b", JinjaValue::Int(2)}}},
                                        kParameters, 2, meter);
  ASSERT_TRUE(bound.ok()) << bound.status();
  EXPECT_EQ((*bound)[0]->AsInt(), 1);
  EXPECT_EQ((*bound)[1]->AsInt(), 2);
}

TEST(JinjaArguments, RefusesTooManyUnknownTwiceAndMissing) {
  JinjaMeter meter({});
  const JinjaValue one = JinjaValue::Int(1);
  EXPECT_EQ(
      BindJinjaArguments("f", {{one, one, one}, {}}, kParameters, 0, meter).status().message(),
      "f takes at most 2 arguments and got 3");
  EXPECT_EQ(BindJinjaArguments("f", {{}, {{"c", one}}}, kParameters, 0, meter).status().message(),
            "f has no argument 'c'");
  EXPECT_EQ(
      BindJinjaArguments("f", {{one}, {{"a", one}}}, kParameters, 0, meter).status().message(),
      "f got argument 'a' twice");
  EXPECT_EQ(BindJinjaArguments("f", {}, kParameters, 1, meter).status().message(),
            "f needs argument 'a'");
}

}  // namespace
}  // namespace baton
