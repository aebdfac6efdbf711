#include "common/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace baton {
namespace {

using ::testing::HasSubstr;

TEST(SettingList, AFieldKeepsItsDefaultUntilItIsSet) {
  int32_t blocks = 16;
  SettingList list;
  list.Add("blocks", &blocks, 1, 128, "How many.");
  EXPECT_EQ(list.settings()[0].default_value, "16");
  EXPECT_EQ(blocks, 16);
  ASSERT_TRUE(list.Set("blocks", "32").ok());
  EXPECT_EQ(blocks, 32);
  EXPECT_EQ(list.settings()[0].default_value, "16");
}

TEST(SettingList, TheEdgesOfARangeAreAllowedAndOnePastIsNot) {
  int32_t value = 5;
  SettingList list;
  list.Add("value", &value, -3, 7, "A value.");
  EXPECT_TRUE(list.Set("value", "-3").ok());
  EXPECT_TRUE(list.Set("value", "7").ok());
  EXPECT_FALSE(list.Set("value", "8").ok());
  EXPECT_FALSE(list.Set("value", "-4").ok());
  EXPECT_EQ(value, 7);
}

TEST(SettingList, ARefusalNamesSettingValueAndRange) {
  int64_t value = 0;
  SettingList list;
  list.Add("pool-mib", &value, int64_t{0}, int64_t{100}, "Size.");
  const absl::Status status = list.Set("pool-mib", "101");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("pool-mib"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("101"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("0 to 100"));
}

TEST(SettingList, TextThatIsNoNumberIsRefused) {
  int64_t whole = 1;
  double real = 1;
  SettingList list;
  list.Add("whole", &whole, int64_t{0}, std::numeric_limits<int64_t>::max(), "Whole.");
  list.Add("real", &real, 0.0, 1.0, "Real.");
  for (const char* text : {"", "x", "1x", "99999999999999999999", "1.5"}) {
    EXPECT_FALSE(list.Set("whole", text).ok()) << text;
  }
  for (const char* text : {"", "nan", "inf", "-0.5", "one"}) {
    EXPECT_FALSE(list.Set("real", text).ok()) << text;
  }
  EXPECT_EQ(whole, 1);
  EXPECT_EQ(real, 1);
}

TEST(SettingList, AFlagReadsTheUsualWords) {
  bool flag = true;
  SettingList list;
  list.Add("flag", &flag, "A flag.");
  EXPECT_TRUE(list.settings()[0].is_flag);
  for (const char* text : {"false", "off", "0"}) {
    flag = true;
    EXPECT_TRUE(list.Set("flag", text).ok());
    EXPECT_FALSE(flag) << text;
  }
  for (const char* text : {"true", "on", "1"}) {
    flag = false;
    EXPECT_TRUE(list.Set("flag", text).ok());
    EXPECT_TRUE(flag) << text;
  }
  EXPECT_FALSE(list.Set("flag", "maybe").ok());
}

enum class Shape { kRound, kSquare };

TEST(SettingList, AChoiceTakesItsNamesAndListsThemInARefusal) {
  Shape shape = Shape::kRound;
  SettingList list;
  list.AddChoice<Shape>("shape", &shape, {{"round", Shape::kRound}, {"square", Shape::kSquare}},
                        "Which.");
  EXPECT_EQ(list.settings()[0].default_value, "round");
  EXPECT_TRUE(list.Set("shape", "square").ok());
  EXPECT_EQ(shape, Shape::kSquare);
  EXPECT_THAT(std::string(list.Set("shape", "oval").message()), HasSubstr("round, square"));
}

TEST(SettingList, AnUnknownNameIsNotFound) {
  SettingList list;
  EXPECT_EQ(list.Set("nothing", "1").code(), absl::StatusCode::kNotFound);
}

TEST(SettingList, EffectiveValuesAreThoseThatChangedEachWithItsDefault) {
  int32_t kept = 1;
  int32_t changed = 2;
  std::string text;
  SettingList list;
  list.Add("kept", &kept, 0, 9, "Kept.");
  list.Add("changed", &changed, 0, 9, "Changed.");
  list.Add("text", &text, "Text.");
  ASSERT_TRUE(list.Set("changed", "3").ok());
  ASSERT_TRUE(list.Set("text", "abc").ok());
  EXPECT_EQ(list.EffectiveValues(), "changed = 3  (default 2)\ntext = abc  (default empty)\n");
  EXPECT_EQ(list.AllValues(), "kept = 1\nchanged = 3  (default 2)\ntext = abc  (default empty)\n");
}

TEST(SettingHelp, HasTheRangeOrTheChoicesAndTheDefault) {
  int32_t blocks = 16;
  bool cache = true;
  std::string text;
  SettingList list;
  list.Add("blocks", &blocks, 1, 128, "blocks of the pool");
  list.AddChoice<bool>("cache", &cache, {{"on", true}, {"off", false}}, "Keeps prefixes.");
  list.Add("text", &text, "Text.");
  const std::vector<Setting>& settings = list.settings();
  EXPECT_EQ(SettingHelp(settings[0]), "Blocks of the pool. Range: 1 to 128. Default: 16.");
  EXPECT_EQ(SettingHelp(settings[1]), "Keeps prefixes. One of: on, off. Default: on.");
  EXPECT_EQ(SettingHelp(settings[2]), "Text.");
}

TEST(SettingList, TextLongerThanItsLimitIsRefusedWithBothNumbers) {
  std::string name;
  SettingList list;
  list.Add("name", &name, 4, "Name.");
  EXPECT_EQ(list.settings()[0].range, "at most 4 bytes");
  EXPECT_TRUE(list.Set("name", "four").ok());
  const absl::Status status = list.Set("name", "fiver");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "--name has 5 bytes; at most 4 are allowed");
  EXPECT_EQ(name, "four");
}

}  // namespace
}  // namespace baton
