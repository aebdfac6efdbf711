// Reports how much memory this process may use, and how much it can still get. Both figures exclude
// swap and respect the limits of the process's control groups.
//
// Thread safety: the functions only read files.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/cpu/control_groups.h"

namespace baton {

struct MemoryPaths {
  std::string meminfo = "/proc/meminfo";
  ControlGroupPaths groups;
};

// The results are in bytes; -1: no figure can be read.
//
// Returns the most that this process may use.
int64_t TotalMemoryBytes(const MemoryPaths& paths = {});
// Returns the amount that this process can still get. Page cache that the kernel can drop counts as
// free.
int64_t AvailableMemoryBytes(const MemoryPaths& paths = {});

}  // namespace baton
