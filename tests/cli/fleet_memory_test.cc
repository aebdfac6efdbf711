#include "cli/fleet_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMiB = 1 << 20;
constexpr WorkerMemory kChooses = {.weight_bytes = 100 * kMiB};

TEST(FleetMemory, ReadsWhatAWorkersSettingsComeTo) {
  EXPECT_TRUE(MemoryOf("", 0).chooses);
  EXPECT_TRUE(MemoryOf("kv-cache-mib = 0\nkv-blocks = 0\n", 0).chooses) << "0: the worker chooses";
  EXPECT_TRUE(MemoryOf("kv-cache-max-mib = 900  (default 0)\n", 0).chooses);
  const WorkerMemory told = MemoryOf("kv-cache-mib = 300  (default 0)\nkv-blocks = 0\n", 7);
  EXPECT_FALSE(told.chooses);
  EXPECT_EQ(told.kv_mib, 300);
  EXPECT_EQ(told.weight_bytes, 7);
  const WorkerMemory blocks = MemoryOf("kv-cache-mib = 300\nkv-blocks = 64  (default 0)\n", 0);
  EXPECT_FALSE(blocks.chooses);
  EXPECT_EQ(blocks.kv_mib, 0) << "blocks come first";
}

TEST(FleetMemory, LeavesTheChoiceToWorkersWhereThereIsPlenty) {
  const std::vector<WorkerMemory> four(4, kChooses);
  EXPECT_EQ(*ShareMemory(four, 64'000 * kMiB), std::nullopt);
  EXPECT_EQ(*ShareMemory(four, -1), std::nullopt) << "not known";
  EXPECT_EQ(*ShareMemory({}, 0), std::nullopt);
}

TEST(FleetMemory, ManyWorkersShareHalfOfWhatIsLeft) {
  const std::vector<WorkerMemory> eight(8, kChooses);
  // Each worker alone would choose a quarter, 1000 MiB. Eight would take 8000 of 4000 MiB.
  EXPECT_EQ(*ShareMemory(eight, 4000 * kMiB), (4000 - 8 * 100) / 2 / 8);
  std::vector<WorkerMemory> one_is_told(8, kChooses);
  one_is_told[3] = {.weight_bytes = 300 * kMiB, .chooses = false, .kv_mib = 700};
  EXPECT_EQ(*ShareMemory(one_is_told, 4000 * kMiB), (4000 - 7 * 100 - 300 - 700) / 2 / 7);
}

TEST(FleetMemory, MoreThanThereIsIsRefused) {
  const std::vector<WorkerMemory> told(
      3, {.weight_bytes = 100 * kMiB, .chooses = false, .kv_mib = 1000});
  EXPECT_TRUE(ShareMemory(told, 3300 * kMiB).ok());
  const absl::Status status = ShareMemory(told, 3299 * kMiB).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("3 workers need 300 MiB for weights and 3000 MiB or more for KV; 3299 MiB "
                        "are available"));
  EXPECT_FALSE(ShareMemory(std::vector<WorkerMemory>(64), 4095 * kMiB).ok());
  EXPECT_EQ(*ShareMemory(std::vector<WorkerMemory>(64), 4096 * kMiB), 64);
  const std::vector<WorkerMemory> vast(64, {.chooses = false, .kv_mib = INT64_MAX});
  EXPECT_FALSE(ShareMemory(vast, 4096 * kMiB).ok());
}

}  // namespace
}  // namespace baton
