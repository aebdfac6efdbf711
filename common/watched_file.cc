#include "common/watched_file.h"

#include <sys/stat.h>

#include <cerrno>
#include <fstream>
#include <iterator>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace baton {

absl::StatusOr<std::optional<std::string>> WatchedFile::Fail(int error, const char* action) {
  stamp_ = {};
  if (std::exchange(failed_, true)) return std::nullopt;
  return absl::ErrnoToStatus(error, absl::StrCat("cannot ", action, " ", path_));
}

absl::StatusOr<std::optional<std::string>> WatchedFile::ReadIfChanged() {
  struct stat found {};
  if (stat(path_.c_str(), &found) != 0) return Fail(errno, "find");
  const Stamp stamp{
      .device = found.st_dev,
      .inode = found.st_ino,
      .bytes = found.st_size,
      .modified_ns = int64_t{found.st_mtim.tv_sec} * 1'000'000'000 + found.st_mtim.tv_nsec};
  if (stamp == stamp_) return std::nullopt;
  errno = 0;
  std::ifstream file(path_, std::ios::binary);
  if (!file) return Fail(errno == 0 ? EIO : errno, "open");
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (file.bad()) return Fail(EIO, "read");
  // The stamp is older than the contents. If the file changed in between, the next call reads
  // again.
  stamp_ = stamp;
  failed_ = false;
  return text;
}

}  // namespace baton
