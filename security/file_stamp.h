// Tells whether a file was replaced or written since it was read.
//
// Thread safety: plain data and pure functions.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>

namespace baton {

struct FileStamp {
  uint64_t device = 0;
  uint64_t inode = 0;
  int64_t bytes = -1;  // negative: there is no such file
  int64_t modified_ns = 0;

  bool operator==(const FileStamp&) const = default;
};

// Follows symbolic links. An empty path has the stamp of a file that does not exist.
inline FileStamp StampOf(const std::string& path) {
  struct stat found = {};
  if (path.empty() || stat(path.c_str(), &found) != 0) return {};
  return {.device = found.st_dev,
          .inode = found.st_ino,
          .bytes = found.st_size,
          .modified_ns = found.st_mtim.tv_sec * 1'000'000'000 + found.st_mtim.tv_nsec};
}

}  // namespace baton
