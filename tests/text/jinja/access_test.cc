#include "text/jinja/access.h"

#include "gtest/gtest.h"
#include "text/jinja/format.h"

namespace baton {
namespace {

// For all bounds, a slice equals that of a direct implementation of Python's rules.
TEST(JinjaAccess, SlicesAsPythonForAllBounds) {
  JinjaMeter meter({});
  std::vector<JinjaValue> items;
  for (int i = 0; i < 4; ++i) items.push_back(JinjaValue::Int(i));
  const JinjaValue list = *NewList(items, meter);
  for (int start = -6; start <= 6; ++start) {
    for (int stop = -6; stop <= 6; ++stop) {
      std::vector<int64_t> expected;
      for (int i = 0; i < 4; ++i) {
        const bool after = i >= (start < 0 ? start + 4 : start);
        if (after && i < (stop < 0 ? stop + 4 : stop)) expected.push_back(i);
      }
      const auto slice =
          JinjaSlice(list, JinjaValue::Int(start), JinjaValue::Int(stop), std::nullopt, meter);
      ASSERT_TRUE(slice.ok());
      std::vector<int64_t> seen;
      for (const JinjaValue& item : slice->sequence().items) seen.push_back(item.AsInt());
      EXPECT_EQ(seen, expected) << start << ":" << stop;
    }
  }
  EXPECT_FALSE(JinjaSlice(list, std::nullopt, std::nullopt, JinjaValue::Int(0), meter).ok());
}

TEST(JinjaAccess, AGeneratorIsConsumedOnce) {
  JinjaMeter meter({});
  const JinjaValue generator =
      *NewSequence(JinjaSequence::Kind::kGenerator, {JinjaValue::Int(1)}, meter);
  EXPECT_TRUE(JinjaItems(generator, meter).ok());
  EXPECT_EQ(JinjaItems(generator, meter).status().code(), absl::StatusCode::kUnimplemented);
}

TEST(JinjaAccess, LengthAndIndexOfAStrAreCharged) {
  const JinjaValue text = JinjaValue::String(JinjaString(std::string(100, 'a'), true));
  for (const int64_t index : {0, 99, 100, -101}) {
    JinjaMeter meter({.max_work_bytes = 99});
    EXPECT_EQ(JinjaSubscript(text, JinjaValue::Int(index), meter).status().code(),
              absl::StatusCode::kResourceExhausted)
        << index;
  }
  JinjaMeter meter({.max_work_bytes = 100});
  EXPECT_EQ(JinjaLength(text, meter)->AsInt(), 100);
  EXPECT_EQ(JinjaLength(text, meter).status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace baton
