#include "common/shared_page_buffer.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "common/huge_page_buffer.h"
#include "common/status_macros.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace baton {
namespace {

constexpr size_t kSmallPageBytes = 4096;

size_t PageFor(size_t bytes) { return bytes >= kHugePageBytes ? kHugePageBytes : kSmallPageBytes; }

size_t RoundUp(size_t bytes, size_t page) {
  return (std::max<size_t>(bytes, 1) + page - 1) / page * page;
}

absl::Status SharedMemoryExhausted(size_t bytes, std::string_view purpose, std::string_view why) {
  return absl::ResourceExhaustedError(
      absl::StrFormat("cannot allocate %d bytes (%.1f MiB) of shared memory for %s: %s", bytes,
                      static_cast<double>(bytes) / (1 << 20), purpose, why));
}

// Maps `size` bytes of `fd` at a multiple of `page`. Returns null if the address space has no room.
std::byte* MapAligned(int fd, size_t size, size_t page, int protection) {
  const size_t reserved = size + page;
  void* const room =
      mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return nullptr;
  auto* const begin = static_cast<std::byte*>(room);
  const size_t skip = (page - reinterpret_cast<uintptr_t>(begin) % page) % page;
  void* const data = mmap(begin + skip, size, protection, MAP_SHARED | MAP_FIXED, fd, 0);
  if (data == MAP_FAILED) {
    munmap(begin, reserved);
    return nullptr;
  }
  if (skip > 0) munmap(begin, skip);
  if (skip < page) munmap(begin + skip + size, page - skip);
  return begin + skip;
}

// Asks for huge pages in the whole range. The kernel does not collapse holes, so each huge page
// first gets one page. MADV_POPULATE_READ makes it without writing, because other threads may write
// to blocks in the same huge page.
void Collapse(std::byte* data, size_t size) {
  for (size_t at = 0; at < size; at += kHugePageBytes) madvise(data + at, 1, MADV_POPULATE_READ);
  madvise(data, size, MADV_COLLAPSE);
}

// Opens the same file for reading only, and bars other users from opening it for writing.
FileDescriptor ReadOnly(int file) {
  if (fchmod(file, S_IRUSR) != 0) return FileDescriptor();
  return FileDescriptor(
      open(absl::StrFormat("/proc/self/fd/%d", file).c_str(), O_RDONLY | O_CLOEXEC));
}

bool OpenForReadingAlone(int file) {
  const int flags = fcntl(file, F_GETFL);
  return flags >= 0 && (flags & O_ACCMODE) == O_RDONLY;
}

}  // namespace

absl::StatusOr<SharedPageBuffer> SharedPageBuffer::Create(size_t bytes, std::string_view purpose,
                                                          int seals) {
  if (bytes > std::numeric_limits<size_t>::max() / 4) {
    return SharedMemoryExhausted(bytes, purpose, "more than the address space");
  }
  const size_t page = PageFor(bytes);
  const size_t size = RoundUp(bytes, page);
  FileDescriptor file(memfd_create("baton-shared", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (file.get() < 0 || ftruncate(file.get(), static_cast<off_t>(size)) != 0) {
    return SharedMemoryExhausted(bytes, purpose, std::strerror(errno));
  }
  std::byte* const data = MapAligned(file.get(), size, page, PROT_READ | PROT_WRITE);
  if (data == nullptr) return SharedMemoryExhausted(bytes, purpose, std::strerror(errno));
  SharedPageBuffer buffer(std::move(file), MappedMemory(data, bytes, size));
  if (fcntl(buffer.fd(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL | seals) != 0) {
    return SharedMemoryExhausted(bytes, purpose, std::strerror(errno));
  }
  return buffer;
}

absl::StatusOr<SharedPageBuffer> SharedPageBuffer::Allocate(size_t bytes,
                                                            std::string_view purpose) {
  ASSIGN_OR_RETURN(SharedPageBuffer buffer, Create(bytes, purpose, F_SEAL_FUTURE_WRITE));
  if (PageFor(bytes) == kHugePageBytes) Collapse(buffer.data(), buffer.mapped_bytes());
  return buffer;
}

absl::StatusOr<SharedPageBuffer> SharedPageBuffer::Reserve(size_t bytes, std::string_view purpose) {
  ASSIGN_OR_RETURN(SharedPageBuffer buffer, Create(bytes, purpose, 0));
  buffer.file_ = ReadOnly(buffer.fd());
  if (buffer.fd() < 0) return SharedMemoryExhausted(bytes, purpose, std::strerror(errno));
  return buffer;
}

void SharedPageBuffer::Populate(size_t offset, size_t bytes) {
  if (PageFor(size()) != kHugePageBytes || bytes == 0) return;
  const size_t begin = offset / kHugePageBytes * kHugePageBytes;
  const size_t end = RoundUp(offset + bytes, kHugePageBytes);
  Collapse(data() + begin, std::min(end, mapped_bytes()) - begin);
}

void SharedPageBuffer::Discard(size_t offset, size_t bytes) {
  const PageRange pages = WholePagesIn(offset, bytes);
  if (pages.bytes > 0) madvise(data() + pages.offset, pages.bytes, MADV_REMOVE);
}

absl::StatusOr<SharedPageView> SharedPageView::Map(int file, size_t bytes) {
  // Asks for the seals first: that call never enters a file system, and a peer's file system might
  // hang.
  const int seals = fcntl(file, F_GET_SEALS);
  if (seals < 0) return absl::InvalidArgumentError("the file descriptor is not a memfd's");
  if ((seals & F_SEAL_SHRINK) == 0 ||
      ((seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) == 0 && !OpenForReadingAlone(file))) {
    return absl::InvalidArgumentError(
        "the shared file must be sealed against shrinking and against new writers");
  }
  // Only a memfd on tmpfs keeps its pages when it is sealed. A file of huge pages has the seals,
  // but not that guarantee.
  struct statfs system;
  struct stat info;
  if (fstatfs(file, &system) != 0 || fstat(file, &info) != 0 || !S_ISREG(info.st_mode) ||
      system.f_type != TMPFS_MAGIC) {
    return absl::InvalidArgumentError("the file descriptor is not a memfd's");
  }
  if (info.st_size < 0 || static_cast<size_t>(info.st_size) < bytes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("the shared file has %d bytes; %d are needed", info.st_size, bytes));
  }
  // Maps whole pages. The file may end in the middle of the last page.
  const size_t size = RoundUp(bytes, kSmallPageBytes);
  std::byte* const data = MapAligned(file, size, PageFor(bytes), PROT_READ);
  if (data == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("cannot map %d bytes of a shared file: %s", bytes, std::strerror(errno)));
  }
  return SharedPageView(MappedMemory(data, bytes, size));
}

}  // namespace baton
