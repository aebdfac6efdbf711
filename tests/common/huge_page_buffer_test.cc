#include "common/huge_page_buffer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <utility>

namespace baton {
namespace {

using testing::HasSubstr;

TEST(HugePageBuffer, IsZeroFilledWritableAndAligned) {
  for (const size_t size : {size_t{1}, size_t{4096}, size_t{5000}, kHugePageBytes - 1,
                            kHugePageBytes, 3 * kHugePageBytes + 1}) {
    auto buffer = HugePageBuffer::Allocate(size, "a test");
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    EXPECT_EQ(buffer->size(), size);
    EXPECT_GE(buffer->mapped_bytes(), size);
    const size_t alignment = size >= kHugePageBytes ? kHugePageBytes : 4096;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % alignment, 0);
    EXPECT_EQ(buffer->data()[0], std::byte{0});
    EXPECT_EQ(buffer->data()[size - 1], std::byte{0});
    buffer->data()[0] = buffer->data()[size - 1] = std::byte{1};
  }
}

TEST(HugePageBuffer, ZeroBytesAreABufferToo) {
  auto buffer = HugePageBuffer::Allocate(0, "nothing");
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(buffer->size(), 0);
  EXPECT_NE(buffer->data(), nullptr);
}

TEST(HugePageBuffer, AReservedOneGivesWholePagesBack) {
  HugePageBuffer buffer = *HugePageBuffer::Reserve(3 * kHugePageBytes, "a range");
  buffer.data()[4095] = buffer.data()[4096] = buffer.data()[12287] = buffer.data()[12288] =
      std::byte{7};
  buffer.Discard(100, 12300);
  EXPECT_EQ(buffer.data()[4095], std::byte{7}) << "shares its page with what stays";
  EXPECT_EQ(buffer.data()[4096], std::byte{0});
  EXPECT_EQ(buffer.data()[12287], std::byte{0});
  EXPECT_EQ(buffer.data()[12288], std::byte{7}) << "ends in the middle of a page";
}

TEST(HugePageBuffer, CountsWholePages) {
  EXPECT_EQ(WholePagesIn(0, 4095).bytes, 0u);
  EXPECT_EQ(WholePagesIn(0, 4096).bytes, 4096u);
  EXPECT_EQ(WholePagesIn(1, 8190).bytes, 0u);
  EXPECT_EQ(WholePagesIn(1, 8191).bytes, 4096u);
  EXPECT_EQ(WholePagesIn(1, 8191).offset, 4096u);
}

TEST(HugePageBuffer, MovesItsMemory) {
  auto first = HugePageBuffer::Allocate(100, "first");
  auto second = HugePageBuffer::Allocate(200, "second");
  ASSERT_TRUE(first.ok() && second.ok());
  std::byte* const data = second->data();
  HugePageBuffer moved = *std::move(first);
  moved = *std::move(second);
  EXPECT_EQ(moved.data(), data);
  EXPECT_EQ(moved.size(), 200);
}

TEST(HugePageBuffer, RefusesAnImpossibleSizeNamingPurposeAndSize) {
  for (const size_t size : {std::numeric_limits<size_t>::max(), size_t{1} << 60,
                            std::numeric_limits<size_t>::max() / 2}) {
    const auto buffer = HugePageBuffer::Allocate(size, "the KV pool");
    EXPECT_EQ(buffer.status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(buffer.status().message()), HasSubstr("the KV pool"));
    EXPECT_THAT(std::string(buffer.status().message()), HasSubstr(std::to_string(size)));
  }
}

TEST(HugePageBuffer, NamesTheModeOfTransparentHugePages) {
  EXPECT_FALSE(TransparentHugePageMode().empty());
}

}  // namespace
}  // namespace baton
