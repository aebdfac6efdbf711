#include "common/sampling_defaults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(SamplingDefaults, ValidFieldsStay) {
  const SamplingDefaults valid = {
      .temperature = 0.6f, .top_k = 20, .top_p = 0.95f, .min_p = 0.0f, .repetition_penalty = 1.05f};
  SamplingDefaults checked = valid;
  EXPECT_THAT(RemoveWrongFields(checked), IsEmpty());
  EXPECT_EQ(checked, valid);
}

TEST(SamplingDefaults, EachWrongFieldIsRemovedWithItsReason) {
  SamplingDefaults defaults = {.temperature = std::numeric_limits<float>::quiet_NaN(),
                               .top_k = -1,
                               .top_p = 0.0f,
                               .min_p = 2.0f,
                               .repetition_penalty = std::numeric_limits<float>::infinity()};
  EXPECT_THAT(RemoveWrongFields(defaults),
              ElementsAre(HasSubstr("temperature is nan; [0, 100]"), HasSubstr("top_k is -1"),
                          HasSubstr("top_p is 0; (0, 1]"), HasSubstr("min_p is 2; [0, 1]"),
                          HasSubstr("repetition_penalty is inf")));
  EXPECT_EQ(defaults, SamplingDefaults());
}

TEST(SamplingDefaults, AWrongFieldLeavesTheOthers) {
  SamplingDefaults defaults = {.temperature = 0.6f, .top_p = 7.0f};
  EXPECT_EQ(RemoveWrongFields(defaults).size(), 1);
  EXPECT_EQ(defaults, SamplingDefaults{.temperature = 0.6f});
}

}  // namespace
}  // namespace baton
