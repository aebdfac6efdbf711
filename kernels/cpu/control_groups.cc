#include "kernels/cpu/control_groups.h"

#include <algorithm>
#include <fstream>

#include "absl/strings/numbers.h"
#include "common/str_cat.h"

namespace baton {
namespace {

bool Lists(std::string_view controllers, std::string_view wanted) {
  while (!controllers.empty()) {
    const size_t end = std::min(controllers.find(','), controllers.size());
    if (controllers.substr(0, end) == wanted) return true;
    controllers.remove_prefix(std::min(end + 1, controllers.size()));
  }
  return false;
}

void AddWithAllAbove(int version, const std::string& root, std::string group,
                     std::vector<ControlGroup>& out) {
  while (group.size() > 1) {
    out.push_back({version, StrCat(root, group)});
    group.resize(std::min(group.find_last_of('/'), group.size()));
  }
  out.push_back({version, root});
}

}  // namespace

std::vector<ControlGroup> OwnControlGroups(std::string_view controller,
                                           const ControlGroupPaths& paths) {
  std::vector<ControlGroup> out;
  std::ifstream file(paths.own);
  // Each line is "number:controllers:group". Version 2 has an empty list of controllers.
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (!group.starts_with('/')) continue;
    if (controllers.empty()) {
      AddWithAllAbove(2, paths.root, group, out);
    } else if (Lists(controllers, controller)) {
      AddWithAllAbove(1, StrCat(paths.root, "/", controller), group, out);
    }
  }
  return out;
}

std::optional<int64_t> NumberIn(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  std::string word;
  while (file >> word) {
    if (!key.empty() && word != key) continue;
    if (!key.empty() && !(file >> word)) return std::nullopt;
    int64_t value = 0;
    return absl::SimpleAtoi(word, &value) ? std::optional(value) : std::nullopt;
  }
  return std::nullopt;
}

}  // namespace baton
