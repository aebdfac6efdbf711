// Temporary folder with the files in which Linux shows a process's control groups.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include "kernels/cpu/control_groups.h"

namespace baton {

class ControlGroupsFolder {
 public:
  ControlGroupsFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "groups-XXXXXX").string();
    root_ = mkdtemp(pattern.data());
  }
  ControlGroupsFolder(const ControlGroupsFolder&) = delete;
  ControlGroupsFolder& operator=(const ControlGroupsFolder&) = delete;
  ~ControlGroupsFolder() { std::filesystem::remove_all(root_); }

  // `path` is "own" or a file below "cgroup/".
  void Write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = Path(path);
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  std::string Path(const std::string& path) const { return root_ + "/" + path; }
  ControlGroupPaths paths() const { return {.own = Path("own"), .root = Path("cgroup")}; }

 private:
  std::string root_;
};

}  // namespace baton
