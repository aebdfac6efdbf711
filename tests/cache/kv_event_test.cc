#include "cache/index/kv_event.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace baton {
namespace {

using ::testing::HasSubstr;
using Kind = KvEvent::Kind;

constexpr CacheTier kDevice = CacheTier::kDevice, kHost = CacheTier::kHost;

KvEvent Stored(CacheTier tier, std::optional<Hash128> parent, std::vector<Hash128> hashes) {
  return {.kind = Kind::kStored, .tier = tier, .parent = parent, .hashes = std::move(hashes)};
}
KvEvent Removed(CacheTier tier, std::vector<Hash128> hashes) {
  return {.kind = Kind::kRemoved, .tier = tier, .parent = {}, .hashes = std::move(hashes)};
}

const std::vector<KvEvent> kEvents = {
    Stored(kDevice, {}, {{1, 2}, {3, 4}}), Stored(kHost, Hash128{3, 4}, {{5, 6}}),
    Removed(kDevice, {{3, 4}}),
    KvEvent{.kind = Kind::kCleared, .tier = kDevice, .parent = {}, .hashes = {}}};

TEST(KvEvent, BatchesAreReadAsTheyWereWritten) {
  for (const auto& events : {kEvents, std::vector<KvEvent>{}}) {
    const auto decoded = DecodeKvEvents(EncodeKvEvents(events));
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(*decoded, events);
  }
}

TEST(KvEvent, TheFormatIsAsDescribed) {
  const std::string bytes = EncodeKvEvents({{Stored(kHost, Hash128{1, 2}, {{3, 4}})}});
  std::string expected(
      "\1\0\0\0\1\0\0\0"
      "\1\1\1\0\1\0\0\0",
      16);
  for (const char byte : {1, 2, 3, 4}) expected += std::string(1, byte) + std::string(7, '\0');
  EXPECT_EQ(bytes, expected);
}

TEST(KvEvent, EveryCutOfABatchIsRefused) {
  const std::string bytes = EncodeKvEvents(kEvents);
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_EQ(DecodeKvEvents(bytes.substr(0, size)).status().code(),
              absl::StatusCode::kInvalidArgument)
        << size;
  }
  EXPECT_THAT(DecodeKvEvents(bytes + "x").status().message(),
              HasSubstr("1 bytes after the last event"));
}

TEST(KvEvent, WrongFieldsAreNamed) {
  const std::string bytes = EncodeKvEvents(kEvents);
  const auto message = [&](size_t at, uint8_t value) {
    std::string changed = bytes;
    changed[at] = static_cast<char>(value);
    return std::string(DecodeKvEvents(changed).status().message());
  };
  EXPECT_THAT(message(0, 2), HasSubstr("version 2"));
  EXPECT_THAT(message(2, 9), HasSubstr("reserved byte 9"));
  EXPECT_THAT(message(7, 255), HasSubstr("events"));
  EXPECT_THAT(message(8, 4), HasSubstr("event 0: kind 4"));
  EXPECT_THAT(message(9, 3), HasSubstr("tier 3 of 3"));
  EXPECT_THAT(message(10, 2), HasSubstr("has_parent 2"));
  EXPECT_THAT(message(11, 1), HasSubstr("reserved byte 1"));
  EXPECT_THAT(message(15, 1), HasSubstr("16777218 hashes, not 1 to 65536"));
  EXPECT_THAT(message(12, 0), HasSubstr("0 hashes"));
  EXPECT_THAT(DecodeKvEvents(std::string(kMaxKvEventBatchBytes + 1, '\1')).status().message(),
              HasSubstr("more than 4194304"));
}

}  // namespace
}  // namespace baton
