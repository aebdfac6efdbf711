// How much memory this process can still take: what the kernel would give without swapping, and
// what the control groups that the process is in allow.
//
// Thread safety: pure but for the files that are read.
#pragma once

#include <cstdint>
#include <string>

namespace baton {

struct MemoryPaths {
  std::string meminfo = "/proc/meminfo";
  std::string own_cgroups = "/proc/self/cgroup";
  std::string cgroup_root = "/sys/fs/cgroup";
};

// Bytes; page cache that can be dropped counts as free. -1: nothing can be read.
// Control groups of version 2, and the memory controller of version 1, with all above them.
int64_t AvailableMemoryBytes(const MemoryPaths& paths = {});

}  // namespace baton
