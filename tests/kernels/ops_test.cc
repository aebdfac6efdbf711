#include "kernels/ops.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "tests/kernels/random_inputs.h"

namespace baton {
namespace {

TEST(Ops, WeightFormatsHaveTheNamesOfGguf) {
  std::set<std::string> names;
  for (const WeightFormat format : kAllWeightFormats) {
    names.insert(std::string(WeightFormatName(format)));
  }
  EXPECT_EQ(names, (std::set<std::string>{"F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1"}));
}

TEST(Ops, QuantizedFormatsAreThoseInGroupsOf32) {
  EXPECT_TRUE(IsQuantized(WeightFormat::kQ8_0));
  EXPECT_TRUE(IsQuantized(WeightFormat::kQ4_0));
  EXPECT_TRUE(IsQuantized(WeightFormat::kQ4_1));
  EXPECT_FALSE(IsQuantized(WeightFormat::kF32));
  EXPECT_FALSE(IsQuantized(WeightFormat::kF16));
  EXPECT_FALSE(IsQuantized(WeightFormat::kBF16));
}

}  // namespace
}  // namespace baton
