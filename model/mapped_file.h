// A file's bytes, mapped read-only: a model larger than memory costs address space, not memory.
//
// The mapping is private and survives deletion of the file's name. A file that another process
// truncates while it is mapped ends this process at the next read past its new end (SIGBUS): model
// files are replaced by rename, never rewritten in place.
//
// Thread safety: immutable; read from any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace baton {

class MappedFile {
 public:
  // Maps a regular file. NotFound, PermissionDenied, … as the system says; InvalidArgument for
  // anything but a regular file with at least one byte.
  static absl::StatusOr<std::unique_ptr<MappedFile>> Open(const std::string& path);

  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }
  // Gives the memory of whole pages inside `part` back; reading them again reads the file again.
  // REQUIRES: part lies in bytes().
  void Release(std::span<const std::byte> part) const;

 private:
  explicit MappedFile(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::span<const std::byte> bytes_;
};

}  // namespace baton
