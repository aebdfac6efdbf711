#include "kernels/cpu/usable_processors.h"

#include <gtest/gtest.h>
#include <sched.h>

#include "tests/kernels/control_groups_folder.h"

namespace baton {
namespace {

int Allowed() {
  cpu_set_t set;
  CPU_ZERO(&set);
  EXPECT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
  return CPU_COUNT(&set);
}

TEST(UsableProcessors, AreThoseThatTheProcessMayRunOn) {
  const ControlGroupsFolder folder;
  EXPECT_EQ(UsableProcessors(folder.paths()), Allowed());
  folder.Write("own", "0::/pod\n");
  folder.Write("cgroup/pod/cpu.max", "max 100000\n");
  EXPECT_EQ(UsableProcessors(folder.paths()), Allowed());
  folder.Write("cgroup/pod/cpu.max", "garbage");
  EXPECT_EQ(UsableProcessors(folder.paths()), Allowed());
}

TEST(UsableProcessors, AQuotaOfVersion2Limits) {
  const ControlGroupsFolder folder;
  folder.Write("own", "0::/pod/worker\n");
  folder.Write("cgroup/pod/worker/cpu.max", "99000000 100000\n");
  EXPECT_EQ(UsableProcessors(folder.paths()), Allowed());
  folder.Write("cgroup/pod/cpu.max", "190000 100000\n");
  EXPECT_EQ(UsableProcessors(folder.paths()), 1);
  folder.Write("cgroup/pod/cpu.max", "50000 100000\n");
  EXPECT_EQ(UsableProcessors(folder.paths()), 1) << "a quota below one processor counts as one";
}

TEST(UsableProcessors, AQuotaOfVersion1Limits) {
  const ControlGroupsFolder folder;
  folder.Write("own", "9:cpu,cpuacct:/a\n0::/\n");
  folder.Write("cgroup/cpu/a/cpu.cfs_quota_us", "-1\n");
  folder.Write("cgroup/cpu/a/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(UsableProcessors(folder.paths()), Allowed());
  folder.Write("cgroup/cpu/a/cpu.cfs_quota_us", "100000\n");
  EXPECT_EQ(UsableProcessors(folder.paths()), 1);
  folder.Write("cgroup/cpu/a/cpu.cfs_period_us", "0\n");
  EXPECT_EQ(UsableProcessors(folder.paths()), Allowed());
}

}  // namespace
}  // namespace baton
