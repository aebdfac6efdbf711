#include "kernels/cpu/available_memory.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/kernels/control_groups_folder.h"

namespace baton {
namespace {

constexpr int64_t kMiB = 1 << 20;

class AvailableMemoryTest : public ::testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) { folder_.Write(path, text); }
  void WriteMemInfo() {
    Write("meminfo", "MemTotal: 4096000 kB\nMemFree: 1024 kB\nMemAvailable: 2048000 kB\n");
  }

  const ControlGroupsFolder folder_;
  const MemoryPaths paths_ = {.meminfo = folder_.Path("meminfo"), .groups = folder_.paths()};
};

TEST_F(AvailableMemoryTest, PageCacheCountsAsAvailable) {
  WriteMemInfo();
  EXPECT_EQ(AvailableMemoryBytes(paths_), 2000 * kMiB);
}

TEST_F(AvailableMemoryTest, TheTotalIsTheHostsOrTheLowestLimitOfAGroup) {
  EXPECT_EQ(TotalMemoryBytes(paths_), -1);
  WriteMemInfo();
  EXPECT_EQ(TotalMemoryBytes(paths_), 4000 * kMiB);
  Write("own", "0::/pod/worker\n");
  Write("cgroup/pod/memory.max", "104857600\n");
  Write("cgroup/pod/worker/memory.max", "max\n");
  EXPECT_EQ(TotalMemoryBytes(paths_), 100 * kMiB);
}

TEST_F(AvailableMemoryTest, WithoutReadableFilesTheResultIsUnknown) {
  EXPECT_EQ(AvailableMemoryBytes(paths_), -1);
  Write("meminfo", "MemAvailable: much\n");
  Write("own", "garbage\n0::relative\n");
  EXPECT_EQ(AvailableMemoryBytes(paths_), -1);
}

TEST_F(AvailableMemoryTest, AGroupOfVersion2AndThoseAboveItLimit) {
  WriteMemInfo();
  Write("own", "0::/pod/worker\n");
  Write("cgroup/pod/worker/memory.max", "max\n");
  Write("cgroup/pod/worker/memory.current", "1048576\n");
  EXPECT_EQ(AvailableMemoryBytes(paths_), 2000 * kMiB);
  Write("cgroup/pod/memory.max", "104857600\n");
  Write("cgroup/pod/memory.current", "41943040\n");
  EXPECT_EQ(AvailableMemoryBytes(paths_), 60 * kMiB);
  Write("cgroup/pod/memory.stat", "anon 1\ninactive_file 10485760\n");
  EXPECT_EQ(AvailableMemoryBytes(paths_), 70 * kMiB);
  Write("cgroup/memory.max", "10485760\n");
  Write("cgroup/memory.current", "20971520\n");
  EXPECT_EQ(AvailableMemoryBytes(paths_), 0) << "a container's own root is over its limit";
}

TEST_F(AvailableMemoryTest, AMemoryControllerOfVersion1Limits) {
  WriteMemInfo();
  Write("own", "9:cpu,cpuacct:/a\n4:hugetlb,memory:/a\n0::/\n");
  Write("cgroup/memory/a/memory.limit_in_bytes", "104857600\n");
  Write("cgroup/memory/a/memory.usage_in_bytes", "52428800\n");
  Write("cgroup/memory/a/memory.stat", "total_inactive_file 1048576\n");
  EXPECT_EQ(AvailableMemoryBytes(paths_), 51 * kMiB);
  Write("cgroup/memory/a/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(AvailableMemoryBytes(paths_), 2000 * kMiB);
}

}  // namespace
}  // namespace baton
