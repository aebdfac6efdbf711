// Finds the control groups (version 1 and 2) of this process. They hold a container's limits.
//
// Thread safety: the functions only read files.
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

// Returns the groups that limit this process through `controller` ("memory", "cpu"): its own group
// and all groups above it, up to the root of the mount. In a container that root is the container's
// own group. Some of the folders may not exist.
std::vector<ControlGroup> OwnControlGroups(std::string_view controller,
                                           const ControlGroupPaths& paths);

// Returns the first number in a file, or with a `key` the number that follows that word. nullopt:
// the number is missing, or is a word such as "max".
std::optional<int64_t> NumberIn(const std::string& path, std::string_view key = "");

}  // namespace baton
