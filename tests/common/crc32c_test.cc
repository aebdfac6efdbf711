#include "common/crc32c.h"

#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace baton {
namespace {

std::span<const std::byte> Bytes(const std::string& s) {
  return std::as_bytes(std::span(s.data(), s.size()));
}

TEST(Crc32c, GivesThePublishedValues) {
  EXPECT_EQ(Crc32c(std::string_view()), 0u);
  EXPECT_EQ(Crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8A9136AAu);  // RFC 3720, B.4
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62A8AB43u);
  EXPECT_EQ(ExtendCrc32cTable(0, Bytes("123456789")), 0xE3069283u);
}

using Extend = uint32_t (*)(uint32_t, std::span<const std::byte>);

void ExpectTheTablesValues(Extend extend) {
  constexpr uint32_t kSeed = 20;
  SCOPED_TRACE(kSeed);
  std::mt19937 random(kSeed);
  std::vector<std::byte> data(20'000);
  for (std::byte& b : data) b = static_cast<std::byte>(random());
  auto check = [&](size_t offset, size_t length, uint32_t start) {
    const auto view = std::span<const std::byte>(data).subspan(offset, length);
    ASSERT_EQ(extend(start, view), ExtendCrc32cTable(start, view))
        << "offset " << offset << " length " << length;
  };
  for (size_t length = 0; length <= 1200; ++length) check(length % 9, length, 0);
  for (int i = 0; i < 2000; ++i) {
    const size_t offset = random() % 64;
    check(offset, random() % (data.size() - offset), static_cast<uint32_t>(random()));
  }
}

TEST(Crc32c, TheChosenVersionEqualsTheTableAtEveryLengthAndAlignment) {
  ExpectTheTablesValues(ExtendCrc32c);
}

TEST(Crc32c, TheSse42VersionEqualsTheTableAtEveryLengthAndAlignment) {
  if (!Crc32cHardwareAvailable()) {
    GTEST_SKIP() << "not run: this processor has no SSE4.2 with PCLMULQDQ";
  }
  ExpectTheTablesValues(ExtendCrc32cHardware);
}

TEST(Crc32c, TheAvx512VersionEqualsTheTableAtEveryLengthAndAlignment) {
  if (!Crc32cAvx512Available()) {
    GTEST_SKIP() << "not run: this processor has no AVX-512 with VPCLMULQDQ";
  }
  ExpectTheTablesValues(ExtendCrc32cAvx512);
}

TEST(Crc32c, ExtendsOverEverySplit) {
  std::string text;
  for (int i = 0; i < 4000; ++i) text.push_back(static_cast<char>(i * 31));
  const uint32_t whole = Crc32c(text);
  for (size_t split = 0; split <= text.size(); split += 7) {
    EXPECT_EQ(ExtendCrc32c(Crc32c(text.substr(0, split)), Bytes(text).subspan(split)), whole);
  }
}

}  // namespace
}  // namespace baton
