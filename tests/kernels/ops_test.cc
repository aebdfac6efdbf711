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
  EXPECT_EQ(names, (std::set<std::string>{"F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0",
                                          "Q5_1", "Q4_K", "Q5_K", "Q6_K"}));
}

TEST(Ops, QuantizedFormatsAreThoseInBlocks) {
  for (const WeightFormat format : kQuantizedFormats) {
    EXPECT_TRUE(IsQuantized(format)) << WeightFormatName(format);
    EXPECT_EQ(BlockColumns(format), WeightFormatName(format).ends_with("_K") ? 256 : 32);
  }
  for (const WeightFormat format : kFloatFormats) {
    EXPECT_FALSE(IsQuantized(format)) << WeightFormatName(format);
    EXPECT_EQ(BlockColumns(format), 1);
  }
}

}  // namespace
}  // namespace baton
