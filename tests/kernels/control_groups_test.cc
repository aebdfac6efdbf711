#include "kernels/cpu/control_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/kernels/control_groups_folder.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> Folders(const ControlGroupsFolder& folder, std::string_view controller) {
  std::vector<std::string> out;
  for (const ControlGroup& group : OwnControlGroups(controller, folder.paths())) {
    out.push_back(std::to_string(group.version) +
                  group.folder.substr(folder.Path("cgroup").size()));
  }
  return out;
}

TEST(ControlGroups, IncludeTheGroupsOfTheProcessAndAllTheirAncestors) {
  const ControlGroupsFolder folder;
  EXPECT_THAT(Folders(folder, "cpu"), IsEmpty());
  folder.Write("own", "9:cpu,cpuacct:/a\n4:hugetlb,memory:/\n0::/pod/worker\n");
  EXPECT_THAT(Folders(folder, "cpu"),
              ElementsAre("1/cpu/a", "1/cpu", "2/pod/worker", "2/pod", "2"));
  EXPECT_THAT(Folders(folder, "memory"), ElementsAre("1/memory", "2/pod/worker", "2/pod", "2"));
  folder.Write("own", "garbage\n0::relative\n1:cpuset:/a\n");
  EXPECT_THAT(Folders(folder, "cpu"), IsEmpty());
}

TEST(ControlGroups, ANumberIsTheFirstWordOrTheWordAfterItsKey) {
  const ControlGroupsFolder folder;
  folder.Write("file", "12 34\nkey 56\nlast");
  EXPECT_EQ(NumberIn(folder.Path("file")), 12);
  EXPECT_EQ(NumberIn(folder.Path("file"), "key"), 56);
  EXPECT_EQ(NumberIn(folder.Path("file"), "last"), std::nullopt);
  EXPECT_EQ(NumberIn(folder.Path("file"), "other"), std::nullopt);
  EXPECT_EQ(NumberIn(folder.Path("no-file")), std::nullopt);
  folder.Write("file", "max 100000\n");
  EXPECT_EQ(NumberIn(folder.Path("file")), std::nullopt);
}

}  // namespace
}  // namespace baton
