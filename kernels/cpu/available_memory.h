// How much memory the host has, and how much this process can still take: without swapping, and
// within the control groups that the process is in.
//
// Thread safety: pure but for the files that are read.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/cpu/control_groups.h"

namespace baton {

struct MemoryPaths {
  std::string meminfo = "/proc/meminfo";
  ControlGroupPaths groups;
};

// Both in bytes; -1: nothing can be read.
// What this process may take at most.
int64_t TotalMemoryBytes(const MemoryPaths& paths = {});
// What it can still take; page cache that can be dropped counts as free.
int64_t AvailableMemoryBytes(const MemoryPaths& paths = {});

}  // namespace baton
