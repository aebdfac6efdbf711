#include "cli/fleet_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMiB = 1 << 20;
constexpr KvCacheAsked kChooses;

KvCacheAsked Of(const std::vector<std::string>& arguments) { return KvCacheOf(arguments); }

TEST(FleetMemory, ReadsWhatAWorkerWasTold) {
  EXPECT_TRUE(Of({}).chooses);
  EXPECT_TRUE(Of({"--kv-cache-mib=0"}).chooses) << "0: the worker chooses";
  EXPECT_TRUE(Of({"--kv-cache-max-mib=900"}).chooses);
  EXPECT_TRUE(Of({"--kv-cache-mib"}).chooses) << "the worker will refuse it";
  EXPECT_EQ(Of({"--kv-cache-mib=300"}).mib, 300);
  EXPECT_EQ(Of({"--kv-cache-mib", "300", "--kv-cache-mib=400"}).mib, 400) << "the last one counts";
  EXPECT_FALSE(Of({"--kv-blocks=64"}).chooses);
  EXPECT_EQ(Of({"--kv-blocks=64", "--kv-cache-mib=300"}).mib, 0) << "blocks come first";
}

TEST(FleetMemory, LeavesTheChoiceToWorkersWhereThereIsPlenty) {
  const std::vector<KvCacheAsked> four(4, kChooses);
  EXPECT_EQ(*ShareMemory(four, 100 * kMiB, 64'000 * kMiB), std::nullopt);
  EXPECT_EQ(*ShareMemory(four, 100 * kMiB, -1), std::nullopt) << "not known";
  EXPECT_EQ(*ShareMemory({}, 100 * kMiB, 0), std::nullopt);
}

TEST(FleetMemory, ManyWorkersShareHalfOfWhatIsLeft) {
  const std::vector<KvCacheAsked> eight(8, kChooses);
  // Each alone would take a quarter, 1000 MiB: 8000 of 4000.
  EXPECT_EQ(*ShareMemory(eight, 100 * kMiB, 4000 * kMiB), (4000 - 8 * 100) / 2 / 8);
  std::vector<KvCacheAsked> one_is_told(8, kChooses);
  one_is_told[3] = {.chooses = false, .mib = 700};
  EXPECT_EQ(*ShareMemory(one_is_told, 100 * kMiB, 4000 * kMiB), (4000 - 8 * 100 - 700) / 2 / 7);
}

TEST(FleetMemory, MoreThanThereIsIsRefused) {
  const std::vector<KvCacheAsked> told(3, {.chooses = false, .mib = 1000});
  EXPECT_TRUE(ShareMemory(told, 100 * kMiB, 3300 * kMiB).ok());
  const absl::Status status = ShareMemory(told, 100 * kMiB, 3299 * kMiB).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("3 workers need 300 MiB for weights and 3000 MiB or more for KV; 3299 MiB "
                        "are available"));
  EXPECT_FALSE(ShareMemory(std::vector<KvCacheAsked>(64, kChooses), 0, 4095 * kMiB).ok());
  EXPECT_EQ(*ShareMemory(std::vector<KvCacheAsked>(64, kChooses), 0, 4096 * kMiB), 64);
  const std::vector<KvCacheAsked> vast(64, {.chooses = false, .mib = INT64_MAX});
  EXPECT_FALSE(ShareMemory(vast, 0, 4096 * kMiB).ok());
}

}  // namespace
}  // namespace baton
