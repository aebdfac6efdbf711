#include "model/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

absl::StatusOr<std::span<const std::byte>> Map(int file, const std::string& path) {
  struct stat info;
  if (fstat(file, &info) != 0) return absl::ErrnoToStatus(errno, absl::StrCat("stat ", path));
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a regular file"));
  }
  if (info.st_size == 0) return absl::InvalidArgumentError(absl::StrCat(path, " is empty"));
  const auto size = static_cast<size_t>(info.st_size);
  void* address = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
  if (address == MAP_FAILED) {
    return absl::ErrnoToStatus(errno, absl::StrCat("map ", size, " bytes of ", path));
  }
  return std::span(static_cast<const std::byte*>(address), size);
}

}  // namespace

absl::StatusOr<std::unique_ptr<MappedFile>> MappedFile::Open(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) {
    const int error = errno;
    const absl::Status status = absl::ErrnoToStatus(error, absl::StrCat("cannot open ", path));
    if (error == ENOTDIR)
      return absl::NotFoundError(status.message());  // a part of the path is not a folder
    return status;
  }
  absl::StatusOr<std::span<const std::byte>> bytes = Map(file, path);
  close(file);
  if (!bytes.ok()) return bytes.status();
  return std::unique_ptr<MappedFile>(new MappedFile(*bytes));
}

void MappedFile::Release(std::span<const std::byte> part) const {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t begin = (static_cast<size_t>(part.data() - bytes_.data()) + page - 1) / page * page;
  const size_t end = static_cast<size_t>(part.data() - bytes_.data() + part.size()) / page * page;
  if (begin >= end) return;
  // This is only advice. Pages that the kernel keeps cost memory and nothing else.
  madvise(const_cast<std::byte*>(bytes_.data()) + begin, end - begin, MADV_DONTNEED);
}

MappedFile::~MappedFile() { munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size()); }

}  // namespace baton
