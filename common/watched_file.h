// A file that is read again when it changes: in place, by renaming, or behind a symbolic link.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace baton {

class WatchedFile {
 public:
  explicit WatchedFile(std::string path) : path_(std::move(path)) {}

  // Returns the contents if they may have changed since the last call; nullopt: they have not. An
  // error (NotFound, PermissionDenied, …) is returned once, until the file can be read again.
  absl::StatusOr<std::optional<std::string>> ReadIfChanged();

 private:
  struct Stamp {
    uint64_t device = 0;
    uint64_t inode = 0;
    int64_t bytes = -1;
    int64_t modified_ns = 0;
    bool operator==(const Stamp&) const = default;
  };

  // Returns an error if the last call did not.
  absl::StatusOr<std::optional<std::string>> Fail(int error, const char* action);

  const std::string path_;
  Stamp stamp_;
  bool failed_ = false;
};

}  // namespace baton
