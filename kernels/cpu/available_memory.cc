#include "kernels/cpu/available_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string_view>

#include "absl/strings/numbers.h"
#include "common/str_cat.h"

namespace baton {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

// The number behind `key` in a file of such lines; nullopt where there is none ("max").
std::optional<int64_t> Field(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  std::string word;
  while (file >> word) {
    if (!key.empty() && word != key) continue;
    if (!key.empty() && !(file >> word)) return std::nullopt;
    int64_t value = 0;
    const bool number = absl::SimpleAtoi(word, &value);
    return number ? std::optional(value) : std::nullopt;
  }
  return std::nullopt;
}

struct GroupFiles {
  const char* limit;
  const char* usage;
  const char* droppable;  // in memory.stat
};
constexpr GroupFiles kVersion1 = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                                  "total_inactive_file"};
constexpr GroupFiles kVersion2 = {"memory.max", "memory.current", "inactive_file"};

// What is asked of a group.
enum class Figure { kLimit, kLeft };

int64_t Read(Figure figure, const std::string& group, const GroupFiles& files) {
  const std::optional<int64_t> limit = Field(StrCat(group, "/", files.limit), "");
  if (figure == Figure::kLimit) return limit.value_or(kUnlimited);
  const std::optional<int64_t> usage = Field(StrCat(group, "/", files.usage), "");
  if (!limit || !usage) return kUnlimited;
  const int64_t droppable = Field(StrCat(group, "/memory.stat"), files.droppable).value_or(0);
  return std::max<int64_t>(0, *limit - std::max<int64_t>(0, *usage - droppable));
}

// The least of the group and all above it.
int64_t ReadUpwards(Figure figure, const std::string& root, std::string group,
                    const GroupFiles& files) {
  int64_t least = Read(figure, root, files);
  while (group.size() > 1) {
    least = std::min(least, Read(figure, StrCat(root, group), files));
    group.resize(std::min(group.find_last_of('/'), group.size()));
  }
  return least;
}

bool Lists(std::string_view controllers, std::string_view wanted) {
  while (!controllers.empty()) {
    const size_t end = std::min(controllers.find(','), controllers.size());
    if (controllers.substr(0, end) == wanted) return true;
    controllers.remove_prefix(std::min(end + 1, controllers.size()));
  }
  return false;
}

// Lines are number:controllers:group; version 2 has no controllers.
int64_t ReadInOwnGroups(Figure figure, const MemoryPaths& paths) {
  std::ifstream file(paths.own_cgroups);
  int64_t least = kUnlimited;
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (!group.starts_with('/')) continue;
    if (controllers.empty()) {
      least = std::min(least, ReadUpwards(figure, paths.cgroup_root, group, kVersion2));
    } else if (Lists(controllers, "memory")) {
      least = std::min(least,
                       ReadUpwards(figure, StrCat(paths.cgroup_root, "/memory"), group, kVersion1));
    }
  }
  return least;
}

// `key`: of the host's own figure.
int64_t HostAndGroups(Figure figure, std::string_view key, const MemoryPaths& paths) {
  constexpr int64_t kKiB = 1024;
  const std::optional<int64_t> kib = Field(paths.meminfo, key);
  const int64_t host = kib ? *kib * kKiB : kUnlimited;
  const int64_t bytes = std::min(host, ReadInOwnGroups(figure, paths));
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
