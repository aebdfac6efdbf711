#include "kernels/cpu/available_memory.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string_view>

#include "common/str_cat.h"

namespace baton {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

struct GroupFiles {
  const char* limit;
  const char* usage;
  const char* droppable;  // key in memory.stat
};
constexpr GroupFiles kVersion1 = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                                  "total_inactive_file"};
constexpr GroupFiles kVersion2 = {"memory.max", "memory.current", "inactive_file"};

// The two figures to read of a group.
enum class Figure { kLimit, kLeft };

int64_t Read(Figure figure, const ControlGroup& group) {
  const GroupFiles& files = group.version == 1 ? kVersion1 : kVersion2;
  const std::optional<int64_t> limit = NumberIn(StrCat(group.folder, "/", files.limit));
  if (figure == Figure::kLimit) return limit.value_or(kUnlimited);
  const std::optional<int64_t> usage = NumberIn(StrCat(group.folder, "/", files.usage));
  if (!limit || !usage) return kUnlimited;
  const int64_t droppable =
      NumberIn(StrCat(group.folder, "/memory.stat"), files.droppable).value_or(0);
  return std::max<int64_t>(0, *limit - std::max<int64_t>(0, *usage - droppable));
}

// `key` selects the host's own figure in meminfo.
int64_t HostAndGroups(Figure figure, std::string_view key, const MemoryPaths& paths) {
  constexpr int64_t kKiB = 1024;
  const std::optional<int64_t> kib = NumberIn(paths.meminfo, key);
  int64_t bytes = kib ? *kib * kKiB : kUnlimited;
  for (const ControlGroup& group : OwnControlGroups("memory", paths.groups)) {
    bytes = std::min(bytes, Read(figure, group));
  }
  return bytes == kUnlimited ? -1 : bytes;
}

}  // namespace

int64_t TotalMemoryBytes(const MemoryPaths& paths) {
  return HostAndGroups(Figure::kLimit, "MemTotal:", paths);
}

int64_t AvailableMemoryBytes(const MemoryPaths& paths) {
  return HostAndGroups(Figure::kLeft, "MemAvailable:", paths);
}

}  // namespace baton
