// Read-only mapping of a file. A model larger than memory costs address space, not memory.
//
// The mapping is private and survives deletion of the file's name. If another process truncates the
// file while it is mapped, the next read past the new end kills this process (SIGBUS). So replace
// model files by rename; never rewrite them in place.
//
// Thread safety: immutable; safe to read from any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace baton {

class MappedFile {
 public:
  // Maps a regular file. Errors of the system keep their code (NotFound, PermissionDenied, …).
  // InvalidArgument: not a regular file, or empty.
  static absl::StatusOr<std::unique_ptr<MappedFile>> Open(const std::string& path);

  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }
  // Returns the memory of whole pages inside `part` to the system. The next read loads them from
  // the file again. REQUIRES: `part` lies in bytes().
  void Release(std::span<const std::byte> part) const;

 private:
  explicit MappedFile(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::span<const std::byte> bytes_;
};

}  // namespace baton
