#include "loadtest/engine_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace baton {
namespace {

using ::testing::HasSubstr;

EngineProfile SmallProfile() {
  EngineProfile profile;
  profile.model = "tiny";
  profile.device = "a \"device\"";
  profile.kv_bytes_per_token = 128;
  profile.max_context = 4096;
  profile.prefill = {.rows = {0, 1000}, .columns = {10, 20}, .us = {{100, 200}, {150, 300}}};
  profile.decode = {.rows = {1, 4}, .columns = {100}, .us = {{50}, {80}}};
  return profile;
}

// `text` with the first `from` replaced.
std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

TEST(TimeGrid, InterpolatesBetweenPointsAndContinuesOutside) {
  const TimeGrid grid = SmallProfile().prefill;
  EXPECT_DOUBLE_EQ(grid.At(0, 10), 100);
  EXPECT_DOUBLE_EQ(grid.At(0, 15), 150);
  EXPECT_DOUBLE_EQ(grid.At(500, 10), 125);
  EXPECT_DOUBLE_EQ(grid.At(500, 15), 187.5);
  EXPECT_DOUBLE_EQ(grid.At(0, 0), 0);
  EXPECT_DOUBLE_EQ(grid.At(0, 40), 400);
  EXPECT_DOUBLE_EQ(grid.At(2000, 10), 200);
}

TEST(TimeGrid, IsLevelOutsideWhereTheLineWouldFall) {
  const TimeGrid falling = {.rows = {0}, .columns = {10, 20}, .us = {{100, 90}}};
  EXPECT_DOUBLE_EQ(falling.At(0, 15), 95);
  EXPECT_DOUBLE_EQ(falling.At(0, 1000), 90);
  EXPECT_DOUBLE_EQ(falling.At(7, 0), 100);
}

TEST(EngineProfile, ComesBackFromItsText) {
  for (const EngineProfile& profile : {SmallProfile(), ComputedProfile()}) {
    const absl::StatusOr<EngineProfile> read = ParseProfile(ProfileText(profile));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(ProfileText(*read), ProfileText(profile));
    EXPECT_EQ(read->model, profile.model);
    EXPECT_EQ(read->prefill.us, profile.prefill.us);
    EXPECT_EQ(read->decode.columns, profile.decode.columns);
  }
}

TEST(EngineProfile, IgnoresKeysThatItDoesNotKnow) {
  const std::string text = Replaced(ProfileText(SmallProfile()), "{", "{\"later\": [1],");
  EXPECT_TRUE(ParseProfile(text).ok());
}

TEST(EngineProfile, ErrorsNameTheFieldTheValueAndTheLimit) {
  const std::string good = ProfileText(SmallProfile());
  const auto error = [&](const std::string& from, const std::string& to) {
    const absl::Status status = ParseProfile(Replaced(good, from, to)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << to;
    return std::string(status.message());
  };
  EXPECT_THAT(error("baton-engine-profile", "other"),
              HasSubstr("format is \"other\"; must be \"baton-engine-profile\""));
  EXPECT_THAT(error("\"version\": 1", "\"version\": 2"), HasSubstr("version is 2; must be"));
  EXPECT_THAT(error("\"model\"", "\"name\""), HasSubstr("model is missing"));
  EXPECT_THAT(error("\"kv_bytes_per_token\": 128", "\"kv_bytes_per_token\": 0"),
              HasSubstr("kv_bytes_per_token is 0; must be a whole number from 1 to"));
  EXPECT_THAT(error("4096", "-1"), HasSubstr("max_context is -1; must be"));
  EXPECT_THAT(error("1000", "0"), HasSubstr("prefill.begin[1] is 0; must be above"));
  EXPECT_THAT(error("300.0", "0"), HasSubstr("prefill.us[1][1] is 0; must be a number above 0"));
  EXPECT_THAT(error("300.0", "\"x\""), HasSubstr("prefill.us[1][1] is \"x\""));
  EXPECT_THAT(error("300.0", "1e300"), HasSubstr("prefill.us[1][1] is 1e+300"));
  EXPECT_THAT(error("\"sequences\"", "\"batch\""), HasSubstr("decode.sequences is missing"));
}

TEST(EngineProfile, RefusesWhatIsNoGrid) {
  for (const char* text : {"", "[]", "{", "7", "{\"format\": \"baton-engine-profile\"}"}) {
    EXPECT_EQ(ParseProfile(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
  EngineProfile ragged = SmallProfile();
  ragged.prefill.us[0].push_back(1);
  EXPECT_THAT(std::string(ParseProfile(ProfileText(ragged)).status().message()),
              HasSubstr("prefill.us[0] must be an array of 2 numbers"));
  EngineProfile short_axis = SmallProfile();
  short_axis.prefill.columns = {10};
  EXPECT_FALSE(ParseProfile(ProfileText(short_axis)).ok());
  EngineProfile wide = SmallProfile();
  wide.decode.rows.resize(EngineProfile::kMostPoints + 1);
  EXPECT_FALSE(ParseProfile(ProfileText(wide)).ok());
}

}  // namespace
}  // namespace baton
