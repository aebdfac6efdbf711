#include "common/crc32c_copy.h"

#include <algorithm>
#include <random>
#include <vector>

#include "common/crc32c.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

using Copy = uint32_t (*)(std::byte*, std::span<const std::byte>, CopyStores, uint32_t);

std::vector<std::pair<const char*, Copy>> Versions() {
  std::vector<std::pair<const char*, Copy>> versions = {{"plain", CopyCrc32cPlain},
                                                        {"chosen", CopyCrc32c}};
  if (Crc32cHardwareAvailable()) versions.emplace_back("sse4.2", CopyCrc32cSse42);
  if (Crc32cAvx512Available()) versions.emplace_back("avx512", CopyCrc32cAvx512);
  return versions;
}

// UndefinedBehaviorSanitizer refuses a memcpy from null, even of no bytes.
TEST(CopyCrc32c, AnEmptySpanMayBeNull) {
  for (const auto& [name, copy] : Versions()) {
    EXPECT_EQ(copy(nullptr, {}, CopyStores::kCached, 0x12345678), 0x12345678) << name;
  }
}

TEST(CopyCrc32c, EveryVersionCopiesExactlyTheBytesAndComputesTheirChecksum) {
  constexpr uint32_t kSeed = 31;
  SCOPED_TRACE(kSeed);
  std::mt19937 random(kSeed);
  std::vector<std::byte> data(20'000);
  for (std::byte& b : data) b = static_cast<std::byte>(random());
  constexpr size_t kMargin = 64;
  std::vector<std::byte> room(data.size() + 3 * kMargin);
  // Aligns the buffer, so that offsets in it are offsets from a boundary.
  std::byte* const target =
      room.data() + (kMargin - reinterpret_cast<uintptr_t>(room.data()) % kMargin);
  const auto check = [&](size_t length, size_t from, size_t to) {
    const std::span<const std::byte> source(data.data() + from, length);
    const uint32_t before = static_cast<uint32_t>(random()) % 2 * 0x12345678;
    const uint32_t want = ExtendCrc32cTable(before, source);
    for (const auto& [name, copy] : Versions()) {
      for (const CopyStores stores : {CopyStores::kCached, CopyStores::kStreaming}) {
        std::fill(room.begin(), room.end(), std::byte{0xA5});
        ASSERT_EQ(copy(target + to, source, stores, before), want) << name << " " << length;
        FinishStreaming();
        ASSERT_TRUE(std::equal(source.begin(), source.end(), target + to)) << name << " " << length;
        ASSERT_EQ(std::count(target, target + to, std::byte{0xA5}), static_cast<int64_t>(to));
        ASSERT_TRUE(std::all_of(target + to + length, room.data() + room.size(),
                                [](std::byte b) { return b == std::byte{0xA5}; }))
            << name << " " << length;
      }
    }
  };
  for (size_t length = 0; length <= 600; length += 1 + random() % 5) check(length, 0, 0);
  for (const size_t length : {767, 768, 769, 3072, 3328, 6144, 16384}) {
    check(length, 0, 0);
    check(length, 5, 0);
    check(length, 64, 16);
    check(length, 1, 3);
  }
  for (int i = 0; i < 50; ++i) {
    const size_t from = random() % 64;
    check(random() % (data.size() - from), from, random() % 64);
  }
}

}  // namespace
}  // namespace baton
