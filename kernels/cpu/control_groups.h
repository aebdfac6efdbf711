// The control groups of this process, of version 2 and of version 1: where a container's limits
// stand.
//
// Thread safety: pure but for the files that are read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace baton {

struct ControlGroupPaths {
  std::string own = "/proc/self/cgroup";
  std::string root = "/sys/fs/cgroup";
};

struct ControlGroup {
  int version = 2;
  std::string folder;
};

// The groups whose `controller` ("memory", "cpu") limits this process: its own, and all above them
// up to the root of the mount, which is a container's own. Not all of the folders need exist.
std::vector<ControlGroup> OwnControlGroups(std::string_view controller,
                                           const ControlGroupPaths& paths);

// The first number in a file; or, with a `key`, the one behind that word. nullopt where there is
// none, or a word such as "max".
std::optional<int64_t> NumberIn(const std::string& path, std::string_view key = "");

}  // namespace baton
