#include "common/protocol_range.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

namespace baton {
namespace {

TEST(ProtocolRange, TheHighestCommonVersionIsUsed) {
  EXPECT_EQ(*CommonVersion({5, 6}, {5, 6}), 6u);
  EXPECT_EQ(*CommonVersion({5, 6}, {6, 7}), 6u);
  EXPECT_EQ(*CommonVersion({6, 7}, {5, 6}), 6u);
  EXPECT_EQ(*CommonVersion({2, 9}, {4, 5}), 5u);
  EXPECT_EQ(*CommonVersion({6, 6}, {6, 6}), 6u);
}

TEST(ProtocolRange, TwoThatDoNotOverlapAreRefusedWithBothRanges) {
  const absl::Status status = CommonVersion({5, 6}, {7, 8}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(), "protocol_version: ours 5 to 6, theirs 7 to 8");
  EXPECT_EQ(CommonVersion({7, 8}, {6, 6}).status().message(),
            "protocol_version: ours 7 to 8, theirs 6");
}

TEST(ProtocolRange, AnInvertedRangeOverlapsNone) {
  EXPECT_FALSE(HaveCommonVersion({5, 6}, {9, 1}));
  EXPECT_FALSE(HaveCommonVersion({6, 5}, {0, UINT32_MAX}));
}

TEST(ProtocolRange, AgreesWithTryingEveryVersion) {
  for (uint32_t bits = 0; bits < 6 * 6 * 6 * 6; ++bits) {
    const ProtocolRange a{bits % 6, bits / 6 % 6}, b{bits / 36 % 6, bits / 216};
    std::optional<uint32_t> highest;
    for (uint32_t version = 0; version < 6; ++version) {
      const auto speaks = [version](ProtocolRange range) {
        return range.oldest <= version && version <= range.newest;
      };
      if (speaks(a) && speaks(b)) highest = version;
    }
    EXPECT_EQ(HaveCommonVersion(a, b), highest.has_value());
    ASSERT_EQ(CommonVersion(a, b).ok(), highest.has_value());
    if (highest) {
      EXPECT_EQ(*CommonVersion(a, b), *highest);
    }
  }
}

TEST(ProtocolRange, ANewestVersionAloneImpliesThePreviousVersion) {
  EXPECT_EQ(ImpliedRange(6), (ProtocolRange{5, 6}));
  EXPECT_EQ(ImpliedRange(0), (ProtocolRange{0, 0}));
}

}  // namespace
}  // namespace baton
